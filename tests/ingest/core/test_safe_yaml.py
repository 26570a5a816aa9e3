"""YAML that asks for more than it is long."""

import time
import tracemalloc
from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from ingest.core.safe_yaml import MOST_DEPTH, MOST_VALUES, parsed

HERE = Path("file.yaml")


def bomb(levels: int = 9, wide: int = 9) -> str:
    """Lists of lists of lists; every level is `wide` times as long as the one before."""
    lines = ["l0: &l0 [x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * wide)}]" for n in range(1, levels)]
    return "\n".join(lines)


REFUSED = {
    "a bomb of lists": (bomb(), "more than 50,000 values"),
    "a bomb of merges": (
        "a: &a {b: 1}\n" + "\n".join(f"m{n}: &m{n} {{<<: [{', '.join(['*a'] * 99)}]}}" for n in range(600)),
        "more than 50,000 values",
    ),
    "an alias of itself": ("a: &a [*a]", "stands inside what it stands for"),
    "an alias of nothing": ("a: *b", "undefined alias"),
    "3,000 levels of lists": ("a: " + "[" * 3000, f"more than {MOST_DEPTH} levels"),
    "3,000 levels of mappings": (
        "\n".join(" " * n + "a:" for n in range(3000)),
        f"more than {MOST_DEPTH} levels",
    ),
    "too many values": ("- 1\n" * (MOST_VALUES + 1), "more than 50,000 values"),
    "a tag": ("a: !!timestamp foo", "the tag 'tag:yaml.org,2002:timestamp' is not read"),
    "a tag that calls": ("a: !!python/object/apply:os.system [true]", "is not read"),
    "a key twice": ("a: 1\nb:\n  c: 1\n  c: 2", "the key 'c' appears twice"),
    "a list as a key": ("? [a]\n: 1", "where a key should"),
    "5,000 digits": (f"a: {'9' * 5000}", "is no number"),
    "a number of base 60": ("a: 1:30", "put text in quotes"),
    "no digit": ("a: 0x_", "is no number"),
    "half a letter": ('a: "\\ud800"', ""),
    "two documents": ("a: 1\n---\nb: 1", "another document"),
    "no end of a list": ("a: [1", "not valid YAML"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_soon_with_file_and_line(what: str) -> None:
    text, says = REFUSED[what]
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(UsageError) as caught:
        parsed(HERE, text, UsageError)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - began < 20 and most < 200 * 1024**2
    message = str(caught.value)
    assert message.startswith("file.yaml:") and says in message
    assert len(message.splitlines()) == 1 and len(message) < 500


def test_the_rest_is_read_as_it_stands() -> None:
    text = (
        "sites: &aws {a: aws:a, b: aws:b}\nother: *aws\nmore: {<<: *aws, b: own}\nday: 2024-13-45\n"
        "rate: 1.5e+9\nbig: 1e9\nyes: no\nempty:\nlist: [1, -2.5, .inf]\n'1': text\n"
    )
    found = parsed(HERE, text, UsageError)
    assert found.value == {
        "sites": {"a": "aws:a", "b": "aws:b"}, "other": {"a": "aws:a", "b": "aws:b"},
        "more": {"a": "aws:a", "b": "own"}, "day": "2024-13-45", "rate": 1.5e9, "big": "1e9", True: False,
        "empty": None, "list": [1, -2.5, float("inf")], "1": "text",
    }  # fmt: skip
    assert found.lines()["other", "b"] == 1 and found.lines()["list", 1] == 9


def test_an_empty_document_has_no_value() -> None:
    assert parsed(HERE, "# nothing\n", UsageError).value is None
    assert parsed(HERE, "", UsageError).lines() == {}
