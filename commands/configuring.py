"""The command that shows what is set: settings and where they come from, scenarios, schemas for editors."""

import json
from typing import TYPE_CHECKING

import click

from commands.completion import scenarios
from commands.frame.options_as_settings import SHARED
from commands.output import Output, command, with_output
from commands.starting import scenario_schema
from ingest.core.errors import UsageError

if TYPE_CHECKING:
    from commands.show.console import Console


@command
@click.option(
    "--scenario",
    "-s",
    help="Show this scenario, name or YAML file, with every default.",
    shell_complete=scenarios,
)
@click.option(
    "--schema",
    type=click.Choice(["dataset", "scenario"]),
    help="Print a JSON schema instead: of dataset.toml, or of scenarios.",
)
@click.option("--show-origin", is_flag=True, help="Say where every setting comes from.")
@with_output
def config(out: Output, scenario: str | None, schema: str | None, show_origin: bool) -> None:
    """List every setting in force, or show a scenario with every default.

    Settings are what options say, in layers: defaults, the user's file (~/.config/twin/config.toml), the
    project's (twin.toml here or in a folder above), variables (TWIN_REPLAY_ENGINE), the command line. What is
    printed is a file of settings itself.

    \b
    Examples:
      twin config --show-origin
      twin config --scenario quad-70b
      twin config --schema dataset > dataset.schema.json
    """
    if (scenario is not None) + (schema is not None) + show_origin > 1:
        raise UsageError("say one of --scenario NAME, --schema WHAT, --show-origin")
    if schema is not None:
        described(out, schema)
    elif scenario is not None:
        resolved(out, scenario)
    else:
        listed(out, show_origin)


def listed(out: Output, show_origin: bool) -> None:
    """`twin config`: every setting in force."""
    from commands.frame import in_force, setting_files
    from commands.show import settings as show

    context = click.get_current_context()
    shared = {name: getattr(out, "as_json" if name == "json" else name) for name in SHARED}
    found = list(in_force.in_force(context, shared))
    idle = in_force.idle_variables(context)
    files = [str(path) for path in setting_files.paths()]
    rows = [one.to_json() for one in found]
    body = {"schema": "twin.settings/1", "files": files, "settings": rows, "idle": idle}
    for name in idle:
        out.console.note(f"the variable {name} sets nothing")
    out.show(body, lambda console: show.settings(console, found, origins=show_origin))


def resolved(out: Output, scenario: str) -> None:
    """`twin config --scenario`: a scenario with every default written out."""
    from twin.scenario import queue_file
    from twin.scenario.prepare import load

    found = (queue_file.load(scenario) or load(scenario)).model_dump(mode="json")

    def as_yaml(console: "Console") -> None:
        import yaml

        console.line(yaml.safe_dump(found, sort_keys=False, allow_unicode=True).rstrip())

    out.show({"schema": "twin.config/1", "scenario": found}, as_yaml)


def described(out: Output, what: str) -> None:
    """`twin config --schema`: the keys of dataset.toml or of scenarios for editors and other programs."""
    from ingest.parsing.dataset import DatasetOptions

    found = scenario_schema() if what == "scenario" else DatasetOptions.model_json_schema()
    out.show(found, lambda console: console.line(json.dumps(found, indent=2)))
