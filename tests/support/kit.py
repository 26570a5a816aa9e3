"""What the contract suite needs of a reader: its kit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bad:
    """A spoilt variant: rows that stay, rows that are rejected, and a word of each reason."""

    what: str
    content: bytes
    stored: int
    rejected: int
    reason: str


@dataclass(frozen=True)
class Kit:
    """What the contract suite needs of a reader: a good file, rows by table, and spoilt variants."""

    reader: str
    file: str
    content: bytes
    stored: dict[str, int]
    bad: tuple[Bad, ...]
    toml: str = ""
    text: bool = True
    """Whether it is CSV, so that byte order marks and line ends must not matter."""


def lines(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()
