"""First scenario files: what is taken from the lake, what is assumed, and that they are what they say."""

from pathlib import Path

import pytest

from ingest.core import config, safe_yaml
from ingest.core.errors import NotFoundError, UsageError
from twin.scenario import drafting
from twin.scenario.drafting import DraftChoices, MeasuredLinks, Seen, draft
from twin.scenario.prepare import Scenario

SAMPLES = {
    ("a", "b"): 5,
    ("b", "a"): 5,
    ("a", "c"): 1,
    ("c", "a"): 1,
    ("b", "c"): 1,
    ("c", "b"): 1,
    ("d", "a"): 9,
}
THREE = MeasuredLinks("three", SAMPLES, frozenset(SAMPLES), 36_000.0)
PAIR = MeasuredLinks("pair", {("x", "y z"): 2, ("y z", "x"): 2}, frozenset({("x", "y z")}), 100.0)
OFFERED = Seen({"three": THREE, "pair": PAIR}, ("H100",))


def read(text: str) -> Scenario:
    path = Path("made.yaml")
    return config.parse(Scenario, safe_yaml.parsed(path, text, UsageError).value, source="made.yaml")


def test_sites_are_those_with_links_between_all_of_them() -> None:
    assert THREE.sites() == ("a", "b", "c")  # d has most samples of all, and none back
    assert THREE.sites(2) == ("a", "b") and not THREE.complete(["a", "d"])


def test_the_lake_decides_what_nobody_chose() -> None:
    made = read(draft(OFFERED, DraftChoices("mine")))
    assert (made.name, made.wan.dataset, made.domains) == ("mine", "three", ("a", "b", "c"))
    assert made.cluster.hardware.gpu == "H100" and made.cluster.hardware.intra_node_bps == 3.6e12
    assert [domain.gpus for domain in made.cluster.domains] == [8, 8, 8]
    assert made.wan.default_rtt_s is None and made.control.period_s == 110  # 0.3 x 36,000 s / 100


def test_what_is_chosen_is_taken_and_what_lacks_is_assumed() -> None:
    chosen = DraftChoices("mine", "pair", ("y z", "x"), "llama2-13b", "a100", 4)
    text = draft(OFFERED, chosen)
    made = read(text)
    assert made.domains == ("y z", "x") and made.model == "llama2-13b"
    assert made.cluster.hardware.gpu == "A100-80" and made.cluster.hardware.gpus_per_node == 4
    assert made.wan.default_rtt_s == drafting.ASSUMED_RTT_S and made.control.period_s == 60
    assert text.startswith("# yaml-language-server: $schema=scenario.schema.json\n")
    assert all(word in text for word in ("# assumed", "known: ", "seen in the lake: H100"))


MISTAKES = {
    "no such set": (DraftChoices("m", "thre"), NotFoundError, "did you mean 'three'"),
    "no such site": (DraftChoices("m", "pair", ("x", "yz")), UsageError, "did you mean 'y z'"),
    "one way": (DraftChoices("m", "three", ("a", "d")), UsageError, "of a > d; together fit: a, b, c"),
    "one site": (DraftChoices("m", "three", ("a", "a")), UsageError, "two or more different"),
    "no such model": (DraftChoices("m", model="bert"), UsageError, "bert"),
    "no such GPU": (DraftChoices("m", gpu="H10O"), UsageError, "nearest: H100"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_there_is(mistake: str) -> None:
    choices, kind, told = MISTAKES[mistake]
    with pytest.raises(kind, match=told):
        draft(OFFERED, choices)


def test_an_empty_lake_says_how_to_fill_it(tmp_path: Path) -> None:
    offered = drafting.seen(tmp_path)
    assert offered == Seen({}, ())
    with pytest.raises(NotFoundError, match="twin ingest shipped"):
        draft(offered, DraftChoices("mine"))
