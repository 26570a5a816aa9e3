"""The command of the closed loop: what it refuses, and that it goes on with what it has measured."""

import io
import json
from pathlib import Path

import pytest

from lab import closed_loop, loop_table


def test_a_machine_without_a_lab_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(closed_loop, "missing", lambda: "no network namespaces")
    assert closed_loop.main([]) == 1
    told = capsys.readouterr()
    assert told.err == "lab: no lab on this machine: no network namespaces\n" and not told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "2"], "--steps 2: 8 or more"),
        (["--repetitions", "0"], "--repetitions 0: 1 or more"),
        (["--degrade", "2-2"], "--degrade 2-2: two sites, as 1-2, or none"),
        (["--degrade-to", "0"], "--degrade-to 0: a share of the bandwidth"),
        (["--time-scale", "0"], "--time-scale 0: above 0"),
    ],
)
def test_a_number_out_of_range_is_named(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert closed_loop.main(words) == 1
    assert said in capsys.readouterr().err


def test_a_command_that_was_stopped_goes_on_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[str, float]] = []

    class Links:
        end_ns = 1_000_000_000_000
        note = "measured"

    class Prepared:
        wan = Links()
        dataset = "some"

    class Lab:
        prepared = Prepared()

        def __init__(self, start_s: float) -> None:
            self.start_s = start_s

    def run(kind: str, lab: Lab, *_: object) -> dict[str, object]:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append((kind, lab.start_s))
        return {"seconds": 6.0 if kind == "followed" else 8.0, "moves": [{"sent_bytes": 5}]}

    monkeypatch.setattr(closed_loop, "missing", lambda: None)
    monkeypatch.setattr(loop_table, "miniature", lambda store, settings, dataset, start_s: Lab(start_s))
    monkeypatch.setattr(loop_table, "_run", run)
    words = ["--store", str(tmp_path / "store"), "--traces", "some", "--repetitions", "2"]
    with pytest.raises(KeyboardInterrupt):
        closed_loop.main(words)
    assert ran == [("followed", 0.0), ("static", 0.0), ("static", 500.0)]

    ran[:] = []
    out = io.StringIO()
    assert closed_loop.main(words, out) == 0
    assert ran == [("followed", 500.0)]
    (trace,) = json.loads(out.getvalue())["traces"]
    assert trace["saved"] == pytest.approx(0.25) and trace["moves"] == 2
