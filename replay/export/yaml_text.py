"""YAML that every parser reads alike: texts that any version takes for something else are quoted.

Kubernetes reads YAML 1.1 through Go: `y`, `on` and `no` may be truth values there, `1e3`, `0x1F`, `1_000` and
`12:30` numbers, `2026-01-01` a time. PyYAML quotes only what it would misread itself. Source: the YAML 1.1
types bool, int, float, null, timestamp, merge and value (yaml.org/type).
"""

import re
from typing import Any

import yaml

_WORDS = {
    "y", "yes", "n", "no", "true", "false", "on", "off", "null", "none", "nil", "inf", "infinity", "nan",
}  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9 ._/-]*[A-Za-z0-9]|[A-Za-z/]")
"""Texts that begin like no number, and hold no mark of YAML."""


class _Dumper(yaml.SafeDumper):
    """Quotes all texts but plain words."""

    def ignore_aliases(self, data: Any) -> bool:
        """Returns True: equal parts are written out, as anchors are refused by some readers."""
        return True


def _represented(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    quoted = "\n" not in text and (not _PLAIN.fullmatch(text) or text.lower() in _WORDS)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if quoted else None)


_Dumper.add_representer(str, _represented)


def dump(*documents: Any, **layout: Any) -> str:
    """Returns the documents as YAML, keys in their order."""
    found = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **layout)
    return str(found)
