"""Writes docs/reference/api.md from the signatures and docstrings of what `import twin` offers.

`python -m tests.support.api_page` after a change; a test holds the page to the code.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import twin

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
TOP = """# The Python front door

Generated from the code by `python -m tests.support.api_page`. `import twin` loads nothing but names; each \
is imported when it is first used. Arguments named `store` take a `Store`, a path, or nothing (`TWIN_STORE`, \
else `.twin`); arguments named `scenario` take the name of a shipped scenario, a YAML file or a `Scenario`. \
Failures that a user can mend are subclasses of `twin.TwinError`.

```python
import twin

store = twin.Store("my-store")
store.ingest()  # the synthetic traces that ship; or your own paths
run = twin.replay("mpc", "tri-7b", store=store)
print(run.kpis.time_per_token_s, store.sql("select count(*) as n from decisions").rows())
print(twin.plan("tri-7b", store=store).plans[0].plan)
```

Complete programs: `examples/own_data.py`, `examples/own_policy.py`, `examples/own_reader.py`,
`examples/tour.ipynb`, and `examples/plugin`, a package that adds a reader and a policy by entry points.
"""
GROUPS = {
    "Store and runs": ("Store", "Run", "QueryResult", "IngestReport", "Comparison"),
    "Functions": (
        "replay", "compare", "estimate", "plan", "batch", "train", "environment",
        "load_scenario", "shipped_traces", "register_policy", "register_reader",
    ),
    "Writing a policy": ("Policy", "Context", "View", "Forecast", "Decision", "Candidate", "Plan"),
    "Writing a reader": ("Reader", "RowBuilder", "RowBatch", "Reject", "Source"),
    "Values": (
        "Scenario", "Cluster", "LinkState", "PlanAnswer", "PlanFigures", "BatchAnswer", "TurningPoint",
        "Answer", "TwinError", "InfeasibleError",
    ),
}  # fmt: skip


def made() -> str:
    """The page."""
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(twin.__all__), set(listed) ^ set(twin.__all__)
    parts = [TOP]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, getattr(twin, name)) for name in names]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    head = f"### `twin.{name}`\n"
    if not inspect.isclass(thing):
        return f"{head}\n{_code(name, thing)}\n{_text(thing)}\n"
    if name in ("Scenario", "TwinError", "InfeasibleError"):
        more = "\n\nThe keys: [scenarios.md](scenarios.md)." if name == "Scenario" else ""
        return f"{head}\n{_text(thing)}{more}\n"
    methods = [
        f"* `{member}{_signature(value)}`: {_first(value)}"
        for member, value in vars(thing).items()
        if not member.startswith("_") and _documented(value)
    ]
    listed = "\n\n" + "\n".join(methods) if methods else ""
    fields = ", ".join(f"`{field}`" for field in getattr(thing, "__dataclass_fields__", {}))
    return f"{head}\n{_text(thing)}" + (f"\n\nFields: {fields}." if fields else "") + f"{listed}\n"


def _documented(value: Any) -> bool:
    target = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
    return inspect.isfunction(target) and bool(target.__doc__)


def _signature(value: Any) -> str:
    if isinstance(value, property) or hasattr(value, "func"):
        return ""
    target = getattr(value, "__func__", value)
    return (
        str(inspect.signature(target)).replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
    )


def _short(text: str) -> str:
    """Types without the modules that they lie in."""
    return re.sub(r"(?<!twin\.)\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _first(value: Any) -> str:
    target = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
    return " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())


def _code(name: str, function: Any) -> str:
    parameters = inspect.signature(function)
    lines = [f"    {parameter}," for parameter in map(str, parameters.parameters.values())]
    returned = parameters.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {getattr(returned, '__name__', returned)}"
    if any(p.kind is p.KEYWORD_ONLY for p in parameters.parameters.values()):
        first = next(i for i, p in enumerate(parameters.parameters.values()) if p.kind is p.KEYWORD_ONLY)
        lines.insert(first, "    *,")
    body = _short("\n".join([f"twin.{name}(", *lines, f"){arrow}"]) if lines else f"twin.{name}(){arrow}")
    return f"```text\n{body}\n```\n"


def _text(thing: Any) -> str:
    """The docstring as Markdown: `Raises:` blocks become one line each."""
    text = inspect.getdoc(thing) or ""
    return text.replace("Raises:\n", "Raises:\n\n").replace("\n    ", "\n")


if __name__ == "__main__":
    from ingest.core.durable import replace

    replace(PAGE, made().encode())
