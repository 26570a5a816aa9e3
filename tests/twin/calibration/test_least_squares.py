import numpy as np
import pytest

from twin.calibration import least_squares
from twin.costs.collectives import Path, all_reduce_s, tree_all_reduce_s

RNG = np.random.default_rng(3)


def test_products_give_back_what_made_them() -> None:
    flops = np.geomspace(1e9, 1e13, 40)
    seconds = 8e-6 + flops / (0.7 * 3e14)
    fit = least_squares.products(flops, seconds, 3e14, flops / 3e14)
    assert fit is not None
    assert fit.values == pytest.approx({"efficiency": 0.7, "start_s": 8e-6}, rel=1e-6)
    assert fit.error_after < 1e-9 < 0.3 < (fit.error_before or 0)


def test_times_that_do_not_grow_are_no_fit() -> None:
    assert least_squares.products(np.geomspace(1e9, 1e12, 9), np.geomspace(2, 1, 9), 1e14, None) is None


def test_a_ring_gives_back_its_link() -> None:
    link = Path(1.2e12, 4e-6)
    ranks = np.repeat([2.0, 4.0, 8.0], 20)
    size = np.tile(np.geomspace(2e3, 6.4e7, 20), 3)
    seconds = np.array([all_reduce_s(float(x), int(n), link) for n, x in zip(ranks, size, strict=True)])
    seconds *= RNG.normal(1, 0.01, len(size))
    fit = least_squares.all_reduce(least_squares.Reductions(ranks, size, seconds, 0 * size, tree=False), link)
    assert fit is not None
    assert fit.values["bandwidth_bps"] == pytest.approx(1.2e12, rel=0.03)
    assert fit.values["alpha_s"] == pytest.approx(4e-6, rel=0.05)


def test_rows_that_ran_as_trees_are_distinguished_from_rings() -> None:
    link, start = Path(2e11, 2e-5), 3e-5
    nodes = np.repeat([2.0, 16.0, 128.0], 30)
    size = np.tile(np.geomspace(1e4, 1e9, 30), 3)
    pairs = [
        (all_reduce_s(x, int(n), link), tree_all_reduce_s(x, int(n), link))
        for x, n in zip(size.tolist(), nodes.tolist(), strict=True)
    ]
    ring, tree = np.array(pairs).T
    rows = least_squares.Reductions(
        nodes, size, start + np.minimum(ring, tree), np.full(90, start), tree=True
    )
    fit = least_squares.all_reduce(rows, Path(1e11, 1e-6))
    assert fit is not None and fit.error_after < 1e-6
    assert fit.values == pytest.approx(
        {"alpha_s": 2e-5, "bandwidth_bps": 2e11, "tree_rows": float((tree < ring).sum())}, rel=1e-6
    )
    assert 0 < fit.values["tree_rows"] < 60  # never between two nodes


def test_the_floor_is_where_the_host_is_slower() -> None:
    modelled = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
    fit = least_squares.floor(modelled, np.array([5.0, 5.0, 5.0, 10.0, 20.0]))
    assert fit.values == {"floor_s": 5.0}
    assert fit.error_after == 0.0


def test_power_is_a_line() -> None:
    activity = RNG.uniform(0, 1, 500)
    fit = least_squares.power(activity, 120 + 600 * activity + RNG.normal(0, 5, 500))
    assert fit.values["idle_w"] == pytest.approx(120, abs=2)
    assert fit.values["slope_w"] == pytest.approx(600, abs=4)
    assert fit.values["deviation_w"] == pytest.approx(5, rel=0.15)
