"""Link samples read in parts are those read at once."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core import resources
from ingest.pipeline.ingest import ingest
from twin.scenario.prepare import load
from twin.settings.wan_links import SourceSettings
from twin.traces import link_samples


@given(
    st.dictionaries(st.tuples(st.sampled_from("abcde"), st.sampled_from("vwxyz")), st.integers(1, 400_000))
)
def test_every_link_is_read_once_and_few_rows_at_a_time(links: dict[tuple[str, str], int]) -> None:
    sizes = [(src, dst, count) for (src, dst), count in sorted(links.items())]
    parts = link_samples._parts(sizes)
    read = [
        [link for link in links if link[0] in sources and link[1] in targets] for sources, targets in parts
    ]
    assert sorted(link for part in read for link in part) == sorted(links)
    for part in read:
        assert len(part) == 1 or sum(links[link] for link in part) <= link_samples.ROWS_AT_ONCE


@pytest.mark.parametrize("rows", [1, 700, 10**9])
def test_the_parts_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    ingest([resources.traces() / "synthetic-tri"], tmp_path)
    spec, source = load("tri-7b").wan, SourceSettings(dataset="synthetic-tri")
    whole = link_samples.series(tmp_path, source, spec, None)
    monkeypatch.setattr(link_samples, "ROWS_AT_ONCE", rows)
    again = link_samples.series(tmp_path, source, spec, None)
    assert list(again) == list(whole) == sorted(whole) and len(whole) == 6
    for pair, link in whole.items():
        np.testing.assert_array_equal(link.times_ns, again[pair].times_ns)
        np.testing.assert_array_equal(link.single_bps, again[pair].single_bps)
        np.testing.assert_array_equal(link.rtt_s, again[pair].rtt_s)
