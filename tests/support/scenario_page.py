"""Writes docs/reference/scenarios.md: every key of a scenario file, from the definitions themselves.

python -m tests.support.scenario_page
"""

import ast
import inspect
import re
from pathlib import Path
from textwrap import dedent
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel

from ingest.core import safe_yaml
from ingest.core.names import RULE
from twin.core import gpu_models, model_presets
from twin.settings import disturbances, job_queue, ranges, scenario_file, wan_links

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenarios.md"
MODULES = (scenario_file, wan_links, disturbances, job_queue)
RANGES = {
    name: f"{'integer' if get_args(kind)[0] is int else 'number'}, {get_args(kind)[1].words}"
    for name, kind in vars(ranges).items()
    if get_origin(kind) is Annotated
}
WORDS = RANGES | {
    "Annotated[tuple[Seconds, ...], Field(min_length=1)]": f"list of {RANGES['Seconds']}",
    "Annotated[tuple[Sequences, ...], Field(min_length=1)]": f"list of {RANGES['Sequences']}",
    "Annotated[tuple[Gpus, ...], Field(min_length=1, max_length=64)]": f"list of {RANGES['Gpus']}",
    "Annotated[tuple[DomainSettings, ...], Field(min_length=2)]": "list of two or more [DomainSettings]",
    "Name": "name",
    "Label": "text",
    "Text": "text",
    "bool": "true or false",
    "Schedule": "gpipe, 1f1b, interleaved or crosspipe",
    "PointToPoint": "blocking or overlapped",
    "ContextExchange": "ring or all-gather",
    "Recompute": "none, selective or full",
    "ArrivalProcess": "trace, poisson, weibull or hours-of-day",
    "Window | Between": "train, validate, test, all, or a [Between]",
    "FilterEngine": "bank, filterpy, gru, ewma or persistence",
}
"""Types of fields in words; a type that is missing here fails the page."""

HEAD = """# Scenarios

A scenario is one YAML file: cluster x model x links x what goes wrong. Every command that takes `--scenario`
takes the path of a file of your own, or the name of a shipped one: {shipped}.
`twin init FILE` writes a first one from what is in the lake, with comments, and beside it the JSON schema of
scenario files, which its first line names: editors then complete keys and mark mistakes.
`twin config --scenario FILE` checks it and prints it with every default written out,
`twin config --schema scenario` prints the schema. Generated from the
definitions by `python -m tests.support.scenario_page`.

## An example

Three sites with H100 nodes, on measurements of your own ([own-data.md](../guides/own-data.md)); the names of
domains are those of the sites in the data set, or `wan.sites` says which is which.

```yaml
{example}
```

Models (`model`): {models}.

GPUs (`gpu`): {gpus}.

Other GPUs are defined from their data sheets under `cluster.gpu_models`. A scenario can name no other
models; `twin estimate` takes the sizes of any model
([estimate.md](../guides/estimate.md)).

## Keys

*Default* is empty where the key must be given. Units are in the names: `_s` seconds, `_bps` bits per second,
`_gb` 1e9 bytes, `usd` US dollars. {names} The names of domains, sites and
links are those of the data: any text of one line.

A list has no more entries than the twin can work with ({most}). A file has at most 1 MiB, {values} values and
{depth} levels; tags, and a key twice in one place, are refused.
"""
EXAMPLE = """name: three-sites
model: llama2-13b

job:
  global_batch: 256               # sequences an iteration
  micro_batches: [1, 2]
  recompute: selective

cluster:
  hardware:                       # what a domain is made of unless it says otherwise
    gpu: h100
    gpus_per_node: 8
    intra_node_bps: 3.6e12        # NVLink 4, one direction
    inter_node_bps: 400e9
    intra_node_latency_s: 3.0e-6
    inter_node_latency_s: 8.0e-6
    usd_per_gpu_hour: 4.0
  domains:
    - {name: paris, gpus: 16}
    - {name: berlin, gpus: 16}
    - {name: madrid, gpus: 8}
  usd_per_gb: {default: 0.05, pairs: {"paris > madrid": 0.02}}

wan:
  dataset: my-links
  streams: 16                     # a transfer opens so many connections
  cap_bps: 10e9
  default_rtt_s: 0.03             # of pairs without a measured one

control: {period_s: 300}"""


def made() -> str:
    """The page."""
    shipped = sorted(path.stem for path in (PAGE.parents[2] / "configs" / "scenarios").glob("*.yaml"))
    parts = [
        HEAD.format(
            shipped=", ".join(f"`{name}`" for name in shipped),
            example=EXAMPLE,
            models=", ".join(f"`{name}`" for name in sorted(model_presets.PRESETS)),
            gpus=", ".join(f"`{name}`" for name in sorted(gpu_models.PRESETS)),
            names=f"{RULE[0].upper()}{RULE[1:].partition(': ')[0]}.",
            most=", ".join(f"`{key}` {most:,}" for key, (most, _) in scenario_file.MOST_ENTRIES.items()),
            values=f"{safe_yaml.MOST_VALUES:,}",
            depth=safe_yaml.MOST_DEPTH,
        )
    ]
    for module in MODULES:
        for kind in _kinds(module):
            parts.append(_section(kind))
    return "\n".join(parts)


def _kinds(module: object) -> list[type[BaseModel]]:
    """Settings that a module defines; the scenario itself first."""
    found = [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, BaseModel) and kind.__module__ == module.__name__  # type: ignore[attr-defined]
    ]
    return sorted(found, key=lambda kind: (kind.__name__ != "Scenario", inspect.getsourcelines(kind)[1]))


def _section(kind: type[BaseModel]) -> str:
    lines = [f"### {kind.__name__}\n", inspect.cleandoc(kind.__doc__ or ""), ""]
    lines += ["| key | what | default | |", "|---|---|---|---|"]
    return "\n".join([*lines, *_rows(kind)]) + "\n"


def _rows(kind: type[BaseModel]) -> list[str]:
    text = dedent(inspect.getsource(kind))
    source, rows = text.splitlines(), []
    (body,) = ast.parse(text).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        last, before = source[(node.end_lineno or node.lineno) - 1], source[node.lineno - 2].strip()
        trailing = re.search(r"#\s*(.*)$", last)
        told = trailing[1] if trailing else before.removeprefix("#").strip() if before.startswith("#") else ""
        if node.end_lineno != node.lineno and not told:
            told = " ".join(
                m[1]
                for line in source[node.lineno - 1 : node.end_lineno]
                if (m := re.search(r"#\s*(.*)$", line))
            )
        rows.append(f"| `{node.target.id}` | {_type(node.annotation)} | {_default(kind, node)} | {told} |")
    return rows


def _type(annotation: ast.expr) -> str:
    text = ast.unparse(annotation)
    optional = text.removesuffix(" | None")
    if optional in WORDS:
        return re.sub(r"\[(\w+)\]", _link, WORDS[optional])
    if found := re.fullmatch(r"tuple\[(.*), \.\.\.\]", optional):
        return f"list of {_type(ast.parse(found[1], mode='eval').body)}"
    if found := re.fullmatch(r"dict\[(\w+), (\w+)\]", optional):
        key, value = (_type(ast.parse(part, mode="eval").body) for part in found.groups())
        return f"map of {key} to {value}"
    if found := re.fullmatch(r"Literal\[(.*)\]", optional):
        return " or ".join(part.strip(" '") for part in found[1].split(","))
    assert any(optional in {kind.__name__ for kind in _kinds(module)} for module in MODULES), text
    return _link(re.fullmatch(r"(\w+)", optional))


def _link(found: re.Match[str] | None) -> str:
    assert found is not None
    return f"[{found[1]}](#{found[1].lower()})"


def _default(kind: type[BaseModel], node: ast.AnnAssign) -> str:
    field = kind.model_fields[ast.unparse(node.target)]
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, BaseModel):
        return "its own"
    if isinstance(value, tuple):
        return str(list(value))
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
