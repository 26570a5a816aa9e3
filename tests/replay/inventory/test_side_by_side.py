"""Runs beside each other: who is paired with whom, and the numbers against those of the rules below."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from replay.inventory import overlay, side_by_side
from replay.inventory.side_by_side import compare
from replay.metrics.paired_comparison import judge
from replay.run.scenario_overrides import parse_link
from replay.run.whatif import what_if
from replay.store import run_index
from replay.training import train as training_run
from tests.support.histories import lose_end
from tests.support.toys import toy_run, without_lake


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        for seed in (0, 1):
            for policy in ("static", "greedy"):
                toy_run(made, policy, seed=seed)
        base = run_index.find(made, "toy-3-static-s0")
        what_if(made, base, links=[parse_link("d0 <> d1 = 0.5")])
    return made


def runs(store: Path, *begins: str) -> list[str]:
    return [run_index.find(store, begin) for begin in begins]


def own(store: Path) -> list[str]:
    """The four replays: static and greedy in two worlds, without the what-if."""
    found = []
    for seed in (0, 1):
        for policy in ("static", "greedy"):
            fits = [run for run in run_index.all_ids(store) if run.startswith(f"toy-3-{policy}-s{seed}-")]
            found.append(run_index.by_start(store, fits)[0])
    return found


def test_two_runs_of_one_world_are_paired_by_blocks_of_time(store: Path) -> None:
    one, two, *_ = own(store)
    found = compare(store, [one, two])
    (pair,) = found.paired
    base, other = found.runs
    assert (pair.base, pair.other, pair.by, pair.pairs) == (one, two, "world", ((one, two),))
    assert pair.differences == judge([base.blocks], [other.blocks])
    assert pair.saved == 1 - other.kpis.time_per_token_s / base.kpis.time_per_token_s  # type: ignore[operator]
    assert pair.verdict in ("better", "equal", "worse") and found.notes == ()


def test_turned_round_the_differences_change_their_sign(store: Path) -> None:
    one, two, *_ = own(store)
    there, back = (compare(store, both).paired[0].differences for both in ([one, two], [two, one]))
    for a, b in zip(there[1:], back[1:], strict=True):
        assert (a.mean, a.low, a.high) == pytest.approx((-b.mean, -b.high, -b.low))


def test_policies_with_runs_in_several_worlds_are_judged_over_worlds(store: Path) -> None:
    found = compare(store, own(store))
    (pair,) = found.paired
    s0, g0, s1, g1 = found.runs
    assert (pair.base, pair.other, pair.by) == ("static", "greedy", "world")
    assert pair.pairs == ((s0.run_id, g0.run_id), (s1.run_id, g1.run_id))
    assert pair.differences == judge([s0.blocks, s1.blocks], [g0.blocks, g1.blocks])


def test_another_world_on_the_same_stretch_is_paired_by_time_and_told(store: Path) -> None:
    base = own(store)[0]
    (changed,) = [run for run in run_index.all_ids(store) if run not in own(store)]
    found = compare(store, [base, changed])
    assert found.paired[0].by == "time" and "another world" in found.notes[0]


def test_other_stretches_have_figures_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side.ComparedRun, "stretch", property(lambda self: self.run_id))
    monkeypatch.setattr(side_by_side.ComparedRun, "world", property(lambda self: self.run_id))
    found = compare(store, own(store)[:2])
    assert found.paired == () and "figures alone" in found.notes[0]


def test_what_cannot_be_compared_is_refused(store: Path, tmp_path: Path) -> None:
    one = own(store)[0]
    with pytest.raises(UsageError, match="two or more different runs"):
        compare(store, [one, one])
    with pytest.raises(UsageError, match="two or more different runs"):
        compare(store, [one])


def test_logs_of_trainings_and_unfinished_runs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lake(monkeypatch)
    first, second = (toy_run(tmp_path, policy).run_id for policy in ("static", "single"))
    header = side_by_side.compared(tmp_path, first).header
    log = training_run.log_curve(tmp_path, replace(header, policy="train"), [])
    with pytest.raises(UsageError, match=f"{log}: the record of a training; a comparison needs a run"):
        compare(tmp_path, [first, log])
    lose_end(run_index.folder(tmp_path, second))
    with pytest.raises(NotFoundError, match="--resume"):
        compare(tmp_path, [first, second])


def test_a_line_ends_at_the_tokens_of_the_run(store: Path) -> None:
    (run,) = compare(store, own(store)[:2]).runs[:1]
    hours, tokens = overlay.line(store, run)
    assert hours[-1] == pytest.approx(run.kpis.wall_s / 3600) and tokens[0] == 0
    assert tokens[-1] == pytest.approx(run.kpis.progress_tokens) and (np.diff(tokens) >= -1e-6).all()


def test_a_plot_is_the_same_each_time_in_the_format_of_its_name(store: Path) -> None:
    found = compare(store, own(store)).runs
    first, again = (overlay.picture(store, found, Path("x.svg")) for _ in range(2))
    assert first == again and b"ahead of the first" not in first[:100] and first.startswith(b"<?xml")
    assert overlay.picture(store, found[:2], Path("x.PNG")).startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        overlay.picture(store, found, Path("x.pdf"))
