"""Routing of matrices over a topology, and data sets that are computed from others."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InputError, UsageError
from ingest.lake import duckdb_views, lake
from ingest.pipeline.ingest import ingest
from ingest.pipeline.routing import routes
from tests.support.kit import lines
from tests.support.kits_links import edge, graph

# a - b - d and a - c - d with equal capacities, and a thin direct link a - d
DIAMOND = {
    ("a", "b"): 10.0, ("b", "d"): 10.0, ("a", "c"): 10.0, ("c", "d"): 10.0, ("a", "d"): 4.0,
    ("d", "a"): 4.0, ("b", "a"): 10.0, ("c", "a"): 10.0, ("d", "b"): 10.0, ("d", "c"): 10.0,
}  # fmt: skip


def test_a_single_path_takes_the_first_of_equal_neighbours() -> None:
    found = routes(DIAMOND, "shortest")
    used = dict(zip(found.links, found.share[found.pairs.index(("a", "d"))].tolist(), strict=True))
    # 1/10 + 1/10 < 1/4: not the thin link
    assert {link for link, share in used.items() if share} == {("a", "b"), ("b", "d")}


def test_equal_paths_share_evenly_and_traffic_is_conserved() -> None:
    found = routes(DIAMOND, "ecmp")
    used = dict(zip(found.links, found.share[found.pairs.index(("a", "d"))].tolist(), strict=True))
    assert {link: share for link, share in used.items() if share} == dict.fromkeys(
        [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")], 0.5
    )
    for (src, dst), row in zip(found.pairs, found.share, strict=True):
        for node in "abcd":
            out = sum(share for (a, _), share in zip(found.links, row, strict=True) if a == node)
            into = sum(share for (_, b), share in zip(found.links, row, strict=True) if b == node)
            assert out - into == pytest.approx((node == src) - (node == dst))


def test_what_is_left_is_that_of_the_tightest_link() -> None:
    found = routes(DIAMOND, "shortest")
    offered = np.zeros((1, len(found.pairs)))
    offered[0, found.pairs.index(("a", "b"))] = 7.0
    left = found.available_bps(found.load_bps(offered))[0]
    assert left[found.pairs.index(("a", "d"))] == 3.0
    assert left[found.pairs.index(("b", "d"))] == 10.0
    # split: 3 left on one of two paths that carry a half each
    both = routes(DIAMOND, "ecmp")
    left = both.available_bps(both.load_bps(offered))[0]
    assert left[both.pairs.index(("a", "d"))] == 6.0
    offered[0, found.pairs.index(("a", "b"))] = 11.0
    assert found.available_bps(found.load_bps(offered))[0][found.pairs.index(("a", "d"))] == 0.0


def test_a_node_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(InputError, match="no path from b to a"):
        routes({("a", "b"): 1.0}, "shortest")
    with pytest.raises(InputError, match="no capacity"):
        routes({("a", "b"): 0.0, ("b", "a"): 1.0}, "ecmp")


def network(folder: Path, recipe: str = 'method = "available"', matrix: str = "0 3e9 1e9 0") -> Path:
    data = folder / "net"
    data.mkdir(parents=True, exist_ok=True)
    (data / "net.json").write_bytes(graph(edge(10e9), edge(10e9, 1, 0)))
    (data / "1.hist").write_bytes(lines(matrix, "0 12e9 0 0"))
    (data / "dataset.toml").write_text(
        f'licence = "MIT"\nstart = 2005-01-01T00:00:00Z\n[derive.net-left]\n{recipe}\n'
    )
    return data


def test_a_derived_set_is_stored_with_its_recipe(tmp_path: Path) -> None:
    report = ingest([network(tmp_path)], tmp_path / "store")
    made = next(file for file in report.files if file.dataset == "net-left")
    assert (made.reader, made.rows_in, made.stored) == ("available", 4, {"link_samples": 4})
    rows = duckdb_views.connect(tmp_path / "store").execute(
        "SELECT src, dst, bandwidth_bps FROM link_samples WHERE kind = 'available' ORDER BY ts, src"
    )
    assert rows.fetchall() == [
        ("node-0", "node-1", 7e9), ("node-1", "node-0", 9e9),
        ("node-0", "node-1", 0.0), ("node-1", "node-0", 10e9),
    ]  # fmt: skip
    meta = lake.datasets(tmp_path / "store")["net-left"].meta
    assert meta["licence"] == "MIT"
    assert any("offered load of net routed over one shortest path" in text for text in meta["assumptions"])
    assert report.notes and report.notes[0].startswith("net-left: available bandwidth computed, not measured")


def test_a_derived_set_is_made_once_and_renewed_with_its_source(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest([network(tmp_path)], store)
    before = lake.digest(store)
    second = ingest([network(tmp_path)], store)
    assert all(file.already for file in second.files) and lake.digest(store) == before
    ingest([network(tmp_path, matrix="0 4e9 1e9 0")], store)
    left = (
        "SELECT count(*), max(bandwidth_bps) FILTER (src = 'node-0') "
        "FROM link_samples WHERE kind = 'available'"
    )
    assert duckdb_views.connect(store).execute(left).fetchone() == (4, 6e9)
    ingest([network(tmp_path, 'method = "available"\nrouting = "ecmp"')], store)
    assert duckdb_views.connect(store).execute(left).fetchone() == (4, 7e9)
    assert any("ECMP" in text for text in lake.datasets(store)["net-left"].meta["assumptions"])


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ('method = "guess"', 'guess. is not "available"'),
        ('method = "available"\nrouting = "ecpm"', "did you mean 'ecmp'"),
        ('method = "available"\nnode = ["a"]', "did you mean 'nodes'"),
        ('method = "available"\nnodes = ["node-0"]', "two or more"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path: Path, recipe: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ingest([network(tmp_path, recipe)], tmp_path / "store")


def test_an_unknown_node_and_missing_matrices_leave_the_set_out(tmp_path: Path) -> None:
    report = ingest(
        [network(tmp_path, 'method = "available"\nnodes = ["node-0", "node-9"]')], tmp_path / "store"
    )
    assert "no node 'node-9'" in str(report.skipped[0].skipped_reason)
    (tmp_path / "b").mkdir()
    data = network(tmp_path / "b")
    (data / "1.hist").unlink()
    report = ingest([data], tmp_path / "b" / "store")
    assert "ingest its traffic matrices too" in str(report.skipped[0].skipped_reason)


@pytest.mark.shared
def test_geant_leaves_what_a_second_way_of_counting_leaves(shared: Path, tmp_path: Path) -> None:
    """One pair, one instant, along the path that the capacities give by hand: 14 -> 4 -> 0."""
    ingest([shared / "traces/wan/geant-traffic-matrices"], tmp_path)
    sql = duckdb_views.connect(tmp_path)
    found = sql.execute(
        "SELECT bandwidth_bps FROM link_samples WHERE dataset = 'geant-available' AND src = 'node-14' "
        "AND dst = 'node-0' ORDER BY ts LIMIT 1"
    ).fetchone()
    capacity = {
        (a, b): rate
        for a, b, rate in sql.execute(
            "SELECT src, dst, bandwidth_bps FROM link_samples WHERE kind = 'capacity'"
        ).fetchall()
    }
    network = routes(capacity, "shortest")
    matrix = np.loadtxt(shared / "traces/wan/geant-traffic-matrices/7.hist", max_rows=1).reshape(22, 22)
    load = {("node-14", "node-4"): 0.0, ("node-4", "node-0"): 0.0}
    for (src, dst), row in zip(network.pairs, network.share, strict=True):
        for link in load:
            if row[network.links.index(link)]:
                load[link] += matrix[int(src[5:]), int(dst[5:])]
    path = network.share[network.pairs.index(("node-14", "node-0"))]
    assert [link for link, share in zip(network.links, path, strict=True) if share] == sorted(load)
    assert found == (pytest.approx(min(10e9 - rate for rate in load.values())),)
