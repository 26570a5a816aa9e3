"""Sites on the nodes of a data set: by name, by the code of a city, in order; errors name what is missing."""

from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.pipeline.ingest import ingest
from twin.traces.site_nodes import nodes_of


def measured(tmp_path: Path, links: Iterable[tuple[str, str]]) -> Path:
    """A lake with a data set `small` that has two samples of each link."""
    folder = tmp_path / "small"
    folder.mkdir()
    rows = [
        f"2024-01-01T0{hour}:00:00Z,{src},{dst},2e9,{0.04 if src < dst else ''}\n"
        for src, dst in links
        for hour in (0, 1)
    ]
    (folder / "links.csv").write_text("ts,src,dst,bandwidth_bps,rtt_s\n" + "".join(rows))
    ingest([folder], tmp_path / "store")
    return tmp_path / "store"


def test_sites_take_nodes_of_their_name_then_their_code_then_what_is_left(tmp_path: Path) -> None:
    store = measured(tmp_path, permutations(["ber1", "gcp-paris-a", "lon02", "oslo"], 2))
    found = nodes_of(store, "small", ["oslo", "Paris", "london", "rome"])
    assert found.nodes == {"oslo": "oslo", "Paris": "gcp-paris-a", "london": "lon02", "rome": "ber1"}
    assert found.named == {"oslo", "Paris", "london"}
    assert "rome = ber1 (in order of nodes)" in found.words and "oslo = oslo (by name)" in found.words
    assert len(found.facts) == 12 and {fact.longest_s for fact in found.facts} == {float("inf")}
    assert sum(fact.has_rtt for fact in found.facts) == 6


def test_a_site_takes_no_node_without_links_to_the_others(tmp_path: Path) -> None:
    pairs = [("a1", "b1"), ("b1", "a1"), ("b1", "c1"), ("c1", "b1"), ("a1", "c1")]
    store = measured(tmp_path, pairs)
    assert nodes_of(store, "small", ["a1", "other"]).nodes == {"a1": "a1", "other": "b1"}
    with pytest.raises(UsageError, match="no link both ways between 'c1' and 'a1'"):
        nodes_of(store, "small", ["a1", "c1"])
    with pytest.raises(UsageError, match=r"no node left for site 'z'.*name fewer sites, or nodes of it: b1"):
        nodes_of(store, "small", ["x", "y", "z"])


def test_a_missing_data_set_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    store = measured(tmp_path, permutations(["a", "b"], 2))
    with pytest.raises(NotFoundError, match=r"no link samples of 'smal'.*small"):
        nodes_of(store, "smal", ["a", "b"])
