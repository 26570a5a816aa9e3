"""Names that the shell completes: runs, policies, scenarios, data sets; and the script that a shell needs.

A shell starts a process for every press of the key, so names are read from the disk without the packages that
give them a meaning.
"""

import ast
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from commands.output import BUCKET, Output, command, with_output
from ingest.core import integrity, plugins, resources, safe_json
from ingest.core.errors import TwinError

REGISTRY = Path(__file__).resolve().parents[1] / "policy" / "core" / "registry.py"
VARIABLE = "_TWIN_COMPLETE"
"""Set by the shell's script; click answers then instead of running a command."""
Items = list[CompletionItem]


def runs(ctx: click.Context, param: click.Parameter, begun: str) -> Items:
    """Returns the runs of the store, and `latest`, that begin so."""
    return _fitting(["latest", *_folders(_store(ctx) / "runs")], begun)


def policies(ctx: click.Context, param: click.Parameter, begun: str) -> Items:
    """Returns the policies, plugins among them, that begin so."""
    known = policy_names()
    return _fitting([*known, *plugins.discover("twin.policies", known)[0]], begun)


def scenarios(ctx: click.Context, param: click.Parameter, begun: str) -> Items:
    """Returns the shipped scenarios that begin so; where none does, files."""
    folders = (resources.configs(kind) for kind in ("scenarios", "queues"))
    shipped = sorted(path.stem for folder in folders for path in folder.glob("*.yaml"))
    return _fitting(shipped, begun) or [CompletionItem(begun, type="file")]


def datasets(ctx: click.Context, param: click.Parameter, begun: str) -> Items:
    """Returns the data sets of the lake that begin so."""
    index: Any = {}
    with suppress(OSError, ValueError, TwinError):  # no lake yet, or one that `twin verify` complains about
        index = safe_json.parsed(integrity.read_regular(_store(ctx) / "lake" / "committed.json"))
    named = index.get("manifests") if isinstance(index, dict) else None
    return _fitting(sorted({str(name) for name in named.values()}) if isinstance(named, dict) else [], begun)


def policy_names() -> list[str]:
    """Returns the names of the policies that ship, from the source of their registry: its import is slow."""
    for node in ast.parse(REGISTRY.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "POLICIES":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError("the registry defines POLICIES")


@command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@with_output
def completion(out: Output, shell: str) -> None:
    """Print the script with which a shell completes commands, options and names.

    Names are those of runs, policies, scenarios and data sets. Bash 4.4 or later.

    \b
    Examples:
      twin completion bash > ~/.local/share/bash-completion/completions/twin
      twin completion zsh > ~/.zfunc/_twin
      twin completion fish > ~/.config/fish/completions/twin.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click completes in the three shells"
    made = kind(click.get_current_context().find_root().command, {}, "twin", VARIABLE)
    # Not `source()`, which looks for a bash on this machine first: the script may be for another one.
    script = made.source_template % made.source_vars()
    out.show({"schema": "twin.completion/1", "shell": shell, "script": script}, lambda c: c.line(script))


def _store(ctx: click.Context) -> Path:
    found = ctx.find_object(Output)
    place = str(found.place if found else os.environ.get("TWIN_STORE") or ".twin")
    if not place.startswith(BUCKET):
        return Path(place)
    from ingest.objects.working_copy import folder_of

    return folder_of(place)  # as it was read last: no request while somebody types


def _folders(place: Path) -> list[str]:
    with suppress(OSError), os.scandir(place) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())
    return []


def _fitting(names: list[str], begun: str) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(begun)]
