"""The command that writes a first scenario file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion as known
from commands.output import PATH, Output, with_output, writing_command
from ingest.core.errors import ExistsError

if TYPE_CHECKING:
    from twin.scenario.drafting import DraftChoices, Seen


@writing_command
@click.argument("path", metavar="[FILE]", type=PATH, default=Path("scenario.yaml"))
@click.option(
    "--dataset",
    metavar="NAME",
    shell_complete=known.datasets,
    help="Links of this data set [the one that joins most sites].",
)
@click.option("--site", "sites", multiple=True, metavar="SITE", help="A site; repeatable [up to four].")
@click.option("--model", metavar="MODEL", help="What is trained [llama2-7b].")
@click.option("--gpu", metavar="GPU", help="GPU model of every site [one seen in the lake, else A100-80].")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of a site [one node].")
@click.option("--name", metavar="NAME", help="Name of the scenario [that of the file].")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--ask/--no-ask", default=None, help="Ask for what is not given [on a terminal].")
@with_output
def init(
    out: Output, path: Path, dataset: str | None, sites: tuple[str, ...], model: str | None,
    gpu: str | None, gpus: int | None, name: str | None, force: bool, ask: bool | None,
) -> None:  # fmt: skip
    """Write a commented scenario file from what is in the lake.

    Sites, links and GPU models come from the measurements; what they do not say takes usual values, told in
    comments. A JSON schema is written beside it, for editors. The file replays at once.

    \b
    Examples:
      twin init
      twin init my.yaml --dataset synthetic-quad --model llama2-13b --gpus 16 --no-ask
    """
    from ingest.core import durable
    from twin.scenario import drafting

    in_place = durable.written_in_place(path)
    if path.exists() and not force and not in_place:
        raise ExistsError(f"{path}: exists already; --force overwrites it, or name another file")
    offered = drafting.seen(out.store)
    chosen = drafting.DraftChoices(
        name=name or path.stem,
        dataset=dataset,
        sites=sites,
        model=model or drafting.MODEL,
        gpu=gpu,
        gpus=gpus,
    )
    interactive = bool(sys.stdin and sys.stdin.isatty()) and not out.as_json if ask is None else ask
    if interactive:
        chosen = asked(offered, chosen, model)
    with out.console.working("trial of the scenario"):
        text = drafting.draft(offered, chosen)
        scenario = checked(out.store, text, path)
    schema = None if in_place else path.with_name(drafting.SCHEMA_NAME)
    if schema is not None:
        durable.replace(schema, f"{json.dumps(scenario_schema(), indent=2)}\n".encode())
    durable.write_output(path, text.encode())
    body = {
        "schema": "twin.init/1",
        "path": str(path),
        "schema_path": None if schema is None else str(schema),
        "scenario": scenario,
    }
    names = ", ".join(domain["name"] for domain in scenario["cluster"]["domains"])
    lines = f"{path}: {scenario['model']} over {names}\ntwin replay --policy mpc --scenario {path}"
    out.show(body, lambda console: console.line(lines))


def asked(offered: "Seen", chosen: "DraftChoices", model: str | None) -> "DraftChoices":
    """Returns the choices with answers to what no option said; an empty answer takes the default."""
    from dataclasses import replace

    from twin.core import gpu_models
    from twin.scenario import drafting

    links = offered.choose(chosen.dataset or _prompt("data set", offered.choose(None).dataset, offered.links))
    sites = chosen.sites or tuple(
        site.strip() for site in _prompt("sites, with commas", ", ".join(links.sites())).split(",")
    )
    gpu = chosen.gpu or _prompt("GPU model", (*offered.gpus, drafting.GPU)[0])
    count = chosen.gpus or click.prompt(
        "GPUs of a site", default=gpu_models.fabric(gpu).gpus_per_node, type=click.IntRange(1), err=True
    )
    return replace(
        chosen, dataset=links.dataset, sites=sites, gpu=gpu, gpus=count,
        model=model or _prompt("model", drafting.MODEL),
    )  # fmt: skip


def _prompt(what: str, default: str, known: Any = ()) -> str:
    listed = f" ({', '.join(known)})" if known else ""
    return str(click.prompt(f"{what}{listed}", default=default, err=True))


def checked(store: Path, text: str, path: Path) -> dict[str, Any]:
    """Returns the scenario with every default, after preparing its world: what is written replays.

    Raises:
        UsageError: it does not, for example because the series is too short to fit filters on.
    """
    from ingest.core import config, safe_yaml
    from ingest.core.errors import UsageError
    from twin.scenario.prepare import Scenario, prepare

    document = safe_yaml.parsed(path, text, UsageError)
    scenario = config.parse(Scenario, document.value, source=str(path), lines=document.lines)
    prepare(scenario, store)
    return scenario.model_dump(mode="json")


def scenario_schema() -> dict[str, Any]:
    """Returns the JSON schema of scenario files, made from the types that read them."""
    from twin.settings.scenario_file import Scenario

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Scenario.model_json_schema()}
