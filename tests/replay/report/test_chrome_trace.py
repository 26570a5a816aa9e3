"""The trace view: valid by the format's rules, and what it shows is what the log says happened."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import UsageError
from ingest.pipeline.ingest import ingest
from replay.log.events import Event
from replay.log.run_log import RunReader, RunWriter
from replay.report import chrome_trace
from replay.run import runner
from replay.store import run_index
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario, toy_setup
from twin.scenario import prepare

Json = dict[str, Any]
WANTED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "ts", "pid", "tid", "s", "args"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
}
"""Keys by phase; the file uses no other phase of the trace event format."""
METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
TICK_US = 2e-3  # times are nanoseconds over a thousand: two roundings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        folder = tmp_path_factory.mktemp("store")
        toy_run(folder, "greedy")
        return folder


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    without_lake(monkeypatch)


def traced(store: Path, from_s: float, to_s: float) -> tuple[chrome_trace.ChromeTrace, Json]:
    (run_id,) = [run for run in run_index.all_ids(store) if "greedy" in run]
    made = chrome_trace.write(store, run_id, store / "trace.json", from_s=from_s, to_s=to_s)
    return made, json.loads(made.path.read_text())


def problems(body: Json) -> Iterator[str]:
    """What is wrong by the rules of the trace event format (JSON object form)."""
    if body["displayTimeUnit"] not in ("ms", "ns"):
        yield "displayTimeUnit"
    events = body["traceEvents"]
    for event in events:
        yield from (f"{event}: {fault}" for fault in faults(event))
    named = Counter((e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M")
    yield from (f"{key}: said {count} times" for key, count in named.items() if count > 1)
    tracks = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xi"}
    for what in ("thread_name", "thread_sort_index"):
        args = {(pid, tid) for name, pid, tid in named if name == what}
        yield from (f"{track}: {what}" for track in tracks ^ args)
    processes = {e["pid"] for e in events}
    for what in ("process_name", "process_sort_index"):
        yield from (f"{p}: {what}" for p in processes ^ {pid for name, pid, _ in named if name == what})
    slices = sorted(
        (e for e in events if e["ph"] == "X"), key=lambda e: (str(e["pid"]), e["tid"], e["ts"], -e["dur"])
    )
    for _, track in groupby(slices, key=lambda e: (e["pid"], e["tid"])):
        yield from overlapping(track)


def faults(event: Json) -> Iterator[str]:
    """What is wrong with one event by itself."""
    phase, args = event["ph"], event["args"]
    if set(event) - {"ph"} != WANTED.get(phase):
        yield "keys"
    if not (isinstance(event["name"], str) and event["name"] and isinstance(args, dict)):
        yield "name and args"
    if not all(isinstance(event[key], int) for key in ("pid", "tid") if key in event):
        yield "numbers of process and track"
    if not all(isinstance(event[key], float) and event[key] >= 0 for key in ("ts", "dur") if key in event):
        yield "time"
    if phase == "i" and event["s"] not in ("g", "p", "t"):
        yield "scope"
    if phase == "C" and not (args and all(isinstance(value, float) for value in args.values())):
        yield "a counter counts"
    if phase == "M":
        key, kind = METADATA[event["name"]]
        if list(args) != [key] or not isinstance(args[key], kind):
            yield "metadata"


def overlapping(track: Iterable[Json]) -> Iterator[str]:
    """Slices of one track that neither nest nor follow each other."""
    ends: list[float] = []
    for event in track:
        if event["dur"] < 0:
            yield f"{event}: ends before it begins"
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        if ends and event["ts"] + event["dur"] > ends[-1]:
            yield f"{event}: overlaps"
        ends.append(event["ts"] + event["dur"])


@pytest.mark.parametrize(("from_s", "to_s"), [(0, 60), (190, 330), (590, 700)])
def test_a_trace_is_valid(store: Path, from_s: float, to_s: float) -> None:
    made, body = traced(store, from_s, to_s)
    assert list(problems(body)) == []
    assert made.events == len(body["traceEvents"]) and made.iterations > 0
    assert json.loads(json.dumps(made.to_json()))["schema"] == "twin.trace/1"


def test_iterations_are_those_of_the_log_and_hold_every_micro_batch(store: Path) -> None:
    _, body = traced(store, 0, 60)
    (run_id,) = run_index.all_ids(store)
    done = next(e for e in RunReader(run_index.folder(store, run_id)).events() if e.type == "iteration_done")
    slices = [e for e in body["traceEvents"] if e["ph"] == "X"]
    first = next(e for e in slices if e["name"] == "iteration 0")
    assert first["dur"] == pytest.approx(done.payload["durations"][0][1] / 1e3)
    inside = [
        e for e in slices if e["pid"] >= chrome_trace.DOMAINS and e["ts"] + e["dur"] <= first["dur"] + TICK_US
    ]
    assert max(e["ts"] + e["dur"] for e in inside) == pytest.approx(first["dur"])
    plan = plan_of(RunReader(run_index.folder(store, run_id)).events())
    stages, every = sum(share["pp"] for share in plan["shares"]), plan["micro_batches"]
    assert Counter(e["cat"] for e in inside) == {
        "forward": stages * every,
        "backward": stages * every,
        "update": stages,
    }
    sent = [e for e in slices if e["pid"] == chrome_trace.LINKS and e["ts"] < first["dur"]]
    assert len([e for e in sent if e["cat"] == "activations"]) == every * (len(plan["shares"]) - 1)


def plan_of(events: Iterable[Event]) -> Json:
    return next(e.payload["plan"] for e in events if e.type == "plan_applied")  # type: ignore[no-any-return]


def test_moves_decisions_and_a_change_on_the_way_are_shown(store: Path) -> None:
    made, body = traced(store, 0, 600)
    (run_id,) = run_index.all_ids(store)
    events = list(RunReader(run_index.folder(store, run_id)).events())
    moves = [e for e in events if e.type == "plan_applied" and e.payload["pause_ns"]]
    shown = [e for e in body["traceEvents"] if e["name"] == "move"]
    assert [e["dur"] for e in shown] == [pytest.approx(m.payload["pause_ns"] / 1e3) for m in moves]
    decided = sum(e.type == "decided" for e in events)
    assert sum(e["name"].startswith("decision ") for e in body["traceEvents"]) == decided
    assert made.stretched >= 1  # the links step in the middle of an iteration
    assert any("stretched" in e["args"] for e in body["traceEvents"] if e["ph"] == "X")


def test_a_run_of_the_event_engine_has_a_trace(tmp_path: Path) -> None:
    done = runner.run(tmp_path, policy="static", scenario=toy_scenario(), engine="des")
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=0, to_s=30)
    assert list(problems(json.loads(made.path.read_text()))) == []


def test_mistakes_are_reported(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for window in ((-1.0, 5.0), (5.0, 5.0), (9.0, 5.0)):
        with pytest.raises(UsageError, match="write a window"):
            traced(store, *window)
    monkeypatch.setattr(chrome_trace, "MOST", 100)
    with pytest.raises(UsageError, match="shorter window"):
        traced(store, 0, 60)


def test_replicas_are_shown_without_their_inside(tmp_path: Path) -> None:
    done = toy_run(tmp_path, "diloco")
    assert plan_of(RunReader(run_index.folder(tmp_path, done.run_id)).events())["sync"] is not None
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=0, to_s=30)
    slices = [e for e in json.loads(made.path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert made.iterations > 0 and slices and not any(e["pid"] >= chrome_trace.DOMAINS for e in slices)


def test_links_that_fail_and_come_back_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = toy_setup(bps=2e10, steps={(0, 1): [(60.0, 0.0), (90.0, 2e10)]})
    monkeypatch.setattr(prepare, "prepare", lambda *_, **__: failing)
    done = toy_run(tmp_path, "static")
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=30, to_s=100)
    body = json.loads(made.path.read_text())
    assert list(problems(body)) == []
    args = {(e["name"], e["ts"]) for e in body["traceEvents"] if e["name"].startswith("link")}
    assert args == {("link failed: d0 > d1", 60e6), ("link restored: d0 > d1", 90e6)}


def test_operations_of_a_slowed_domain_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = toy_setup(bps=2e10, slowdowns=[{"domain": "d1", "factor": 2.0, "at_s": 100, "for_s": 100}])
    monkeypatch.setattr(prepare, "prepare", lambda *_, **__: slow)
    done = toy_run(tmp_path, "static")
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=0, to_s=200)
    slices = [e for e in json.loads(made.path.read_text())["traceEvents"] if e["ph"] == "X"]
    for k, factor in ((0, 1.0), (1, 2.0)):
        forward = [e for e in slices if e["pid"] == chrome_trace.DOMAINS + k and e["cat"] == "forward"]
        plain = [e["dur"] for e in forward if not e["args"]]  # in iterations through which nothing changed
        assert plain[-1] == pytest.approx(factor * plain[0], rel=1e-3)


def test_beyond_the_end_of_a_run_there_is_no_window(store: Path) -> None:
    with pytest.raises(UsageError, match="the run goes from 0 to 600 s"):
        traced(store, 600, 660)


def test_lost_time_is_shown_with_its_reason(tmp_path: Path) -> None:
    fault = [{"domain": "d0", "gpus": 4, "at_s": 100, "for_s": 60}]
    done = runner.run(tmp_path, policy="greedy", scenario=toy_scenario(gpu_faults=fault))
    lost = [e for e in RunReader(run_index.folder(tmp_path, done.run_id)).events() if e.type == "time_lost"]
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=0, to_s=600)
    shown = [e for e in json.loads(made.path.read_text())["traceEvents"] if e["name"].startswith("lost: ")]
    assert {e["name"] for e in shown} == {f"lost: {event.payload['reason']}" for event in lost} != set()


SCHEDULES: dict[str, Json] = {
    "1f1b": {},
    "gpipe": {"schedule": "gpipe"},
    "crosspipe": {"schedule": "crosspipe", "p2p": "overlapped"},
    "interleaved": {"schedule": "interleaved", "chunks": 2},
    "zb-h1": {"schedule": "zb-h1", "p2p": "rendezvous"},
    "zb-v": {"schedule": "zb-v", "chunks": 2},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_a_valid_trace_with_every_operation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    job = toy_scenario().job.model_copy(update=SCHEDULES[name]).model_dump()
    monkeypatch.setattr(prepare, "prepare", lambda *_, **__: toy_setup(job=job, seconds=90.0))
    done = runner.run(tmp_path, policy="mpc", scenario=toy_scenario(job=job))
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=0, to_s=30)
    body = json.loads(made.path.read_text())
    assert list(problems(body)) == []
    plan = plan_of(RunReader(run_index.folder(tmp_path, done.run_id)).events())
    slices = [e for e in body["traceEvents"] if e["ph"] == "X"]
    first = next(e for e in slices if e["name"] == "iteration 0")
    inside = [
        e for e in slices if e["pid"] >= chrome_trace.DOMAINS and e["ts"] + e["dur"] <= first["dur"] + TICK_US
    ]
    computed = Counter((e["pid"], e["tid"], e["name"]) for e in inside)
    assert set(computed.values()) == {1}
    stages, chunks = sum(share["pp"] for share in plan["shares"]), plan.get("chunks", 1)
    assert (plan["schedule"], chunks) == (name, SCHEDULES[name].get("chunks", 1))
    kinds = Counter(e["cat"] for e in inside)
    assert kinds["forward"] == kinds["backward"] == stages * chunks * plan["micro_batches"]
    assert ("forward 0 chunk 1" in {e["name"] for e in inside}) == (chunks > 1)


def test_jobs_that_run_at_once_never_share_a_track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # this world is one of the lake
    ingest([Path(__file__).parents[3] / "traces"], tmp_path)
    done = runner.run(tmp_path, policy="greedy", scenario=prepare.load("tri-jobs"))
    made = chrome_trace.write(tmp_path, done.run_id, tmp_path / "x.json", from_s=590, to_s=620)
    body = json.loads(made.path.read_text())
    assert list(problems(body)) == []
    names = {e["args"]["name"] for e in body["traceEvents"] if e["name"] == "thread_name"}
    assert {"long: run", "short: run", "long: stage 0", "short: stage 0"} <= names


def test_the_rules_find_what_is_wrong(store: Path) -> None:
    _, body = traced(store, 0, 30)
    events = body["traceEvents"]
    slice_ = next(e for e in events if e["ph"] == "X" and e["cat"] == "forward")
    broken: list[Json] = [
        {**slice_, "ph": "B"},
        {**slice_, "ts": -1.0},
        {**slice_, "ts": slice_["ts"] + slice_["dur"] / 2},
        {**slice_, "tid": 99},
        {**slice_, "pid": "10"},
        next(e for e in events if e["ph"] == "M"),
    ]
    for event in broken:
        assert list(problems({**body, "traceEvents": [*events, event]})), event
    unnamed = [e for e in events if e["name"] != "thread_name"]
    assert list(problems({**body, "traceEvents": unnamed}))


def test_the_log_of_a_training_has_no_trace_and_says_what_it_is(tmp_path: Path) -> None:
    done = toy_run(tmp_path, "static")
    header = RunReader(run_index.folder(tmp_path, done.run_id)).header()
    with RunWriter.create(run_index.folder(tmp_path, "t")) as log:
        log.append(0, "run_started", {**header, "policy": "train"})
        log.finish({})
    with pytest.raises(UsageError, match=r"the record of a training.*`twin report t` shows this one"):
        chrome_trace.write(tmp_path, "t", tmp_path / "x.json", from_s=0, to_s=30)
