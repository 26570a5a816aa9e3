"""Policies in one world: ratios by definition, the bound above them all, and why somebody could not run."""

import json
import shutil
from pathlib import Path

import pytest

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Decision
from replay.bench import comparison
from replay.bench.world import BenchWorld
from replay.run import whatif
from replay.store import run_index
from tests.support.toys import Threshold, register, toy_run, without_lake
from tests.support.worlds import toy_scenario
from twin.core.view import View

POLICIES = ("static", "single", "greedy", "mpc")
Compared = tuple[Path, comparison.Comparison]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    store = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        return store, comparison.compare(store, POLICIES, BenchWorld.of(toy_scenario()))


def test_every_policy_ran_in_the_same_world(compared: Compared) -> None:
    store, found = compared
    assert [row.policy for row in found.rows if row.kpis] == list(POLICIES)
    assert [row.run_id for row in found.rows if row.run_id] and len(run_index.all_ids(store)) == len(POLICIES)
    assert {row.kpis.wall_s for row in found.rows if row.kpis} == {found.wall_s}


def test_ratios_by_definition(compared: Compared) -> None:
    rows = {row.policy: row for row in compared[1].rows}
    static, mpc = rows["static"], rows["mpc"]
    assert static.reduction_vs_static == 0 and rows["single"].reduction_vs_single == 0
    assert mpc.kpis and static.kpis and mpc.kpis.time_per_token_s and static.kpis.time_per_token_s
    assert mpc.reduction_vs_static == 1 - mpc.kpis.time_per_token_s / static.kpis.time_per_token_s
    assert compared[1].bound and mpc.regret == 1 - mpc.kpis.progress_tokens / compared[1].bound.tokens
    assert mpc.regret_static == 1 - mpc.kpis.progress_tokens / compared[1].bound.static_tokens
    assert mpc.regret_kept == 1 - mpc.kpis.progress_tokens / compared[1].bound.kept_tokens


def test_nobody_beats_the_bound(compared: Compared) -> None:
    found = compared[1]
    assert found.bound and found.bound.tokens >= found.bound.static_tokens * (1 - 1e-12)  # other sums
    for row in found.rows:
        assert row.kpis is None or row.kpis.tokens <= found.bound.tokens, row.policy


def test_a_ceiling_where_the_space_may_be_priced(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    store, found = compared
    assert found.bound and found.bound.ceiling_tokens
    assert found.bound.synchronous_tokens <= found.bound.ceiling_tokens < found.bound.capacity_tokens
    without_lake(monkeypatch)
    setup = BenchWorld.of(toy_scenario()).prepare(store)
    rows = comparison.relate_to_bound(store, setup, found.rows, priced=0)
    assert rows.bound and rows.bound.ceiling_tokens is None


def test_greedy_pays_for_its_moves(compared: Compared) -> None:
    rows = {row.policy: row.kpis for row in compared[1].rows}
    assert rows["greedy"] and rows["mpc"] and rows["greedy"].moves > rows["mpc"].moves
    assert rows["greedy"].tokens < rows["mpc"].tokens


def test_json(compared: Compared) -> None:
    shown = json.loads(json.dumps(compared[1].to_json(), allow_nan=False))
    assert shown["schema"] == "twin.compare/1" and len(shown["rows"]) == len(POLICIES)
    assert shown["bound"]["tokens"] > 0


def test_a_policy_that_cannot_run_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Threshold, view: View) -> Decision:
        raise InfeasibleError("needs 99 GiB")

    without_lake(monkeypatch)
    register(monkeypatch, "threshold", "Threshold")
    monkeypatch.setattr(Threshold, "decide", never)
    found = comparison.compare(
        tmp_path, ("threshold", "static"), BenchWorld.of(toy_scenario()), with_bound=False
    )
    assert found.rows[0].problem == "needs 99 GiB" and found.rows[0].kpis is None
    assert found.rows[1].kpis and found.bound is None and found.rows[1].regret is None


def test_runs_of_the_same_world_are_set_beside_each_other(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    store = Path(shutil.copytree(compared[0], tmp_path / "store"))
    base = next(row.run_id for row in compared[1].rows if row.policy == "greedy")
    assert base is not None
    branch = whatif.what_if(store, base, "single", from_decision=2).run_id
    newer = toy_run(store, "static", seed=9).run_id  # in another world
    found = comparison.stored_runs_of_world(store, base)
    assert [row.policy for row in found.rows] == list(POLICIES)
    assert not {branch, newer} & {row.run_id for row in found.rows}
    assert found.bound and compared[1].bound and found.bound.tokens == compared[1].bound.tokens
    assert [row.regret for row in found.rows] == [row.regret for row in compared[1].rows]
