"""Logs of every format that was ever written are audited, queried and lifted.

`PYTHONPATH=. python tests/golden/test_golden.py` writes what is expected of a new one, never over an old one.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from replay.log import events
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.sql.formats import render
from replay.sql.query import query

GOLDEN = Path(__file__).parent
LOGS = sorted(path.parent for path in GOLDEN.glob("*/run"))
QUESTIONS = (
    "SELECT type, version, count(*) AS n, min(seq) AS first, max(sim_ns) AS last_ns"
    " FROM events GROUP BY ALL ORDER BY ALL",
    "SELECT * EXCLUDE (segments, stored_bytes) FROM runs",
    "SELECT number, time_s, \"trigger\", action, reason, predicted_iter_s, candidates, best_iter_s, fallback,"
    " latency_s FROM decisions ORDER BY number",
    "SELECT * EXCLUDE (plan) FROM plans ORDER BY seq",
    "SELECT count(*) AS n, sum(count)::BIGINT AS iterations, sum(tokens)::BIGINT AS tokens,"
    " sum(wan_bytes)::BIGINT AS wan_bytes, max(energy_j) AS energy_j FROM iterations",
    "SELECT kind, src, dst, count(*) AS n, min(bandwidth_bps) AS low, max(latency_s) AS slow,"
    " max(sd_log) AS sd FROM links GROUP BY ALL ORDER BY ALL",
    "SELECT * FROM jobs ORDER BY seq",
    "SELECT * FROM training ORDER BY seq",
)  # fmt: skip


def observed(store: Path) -> dict[str, Any]:
    """What is expected to stay the same for ever."""
    reader = RunReader(store / "runs" / "run")
    return {
        "digest": reader.digest(),
        "chain_head": reader.chain_head(),
        "finished": reader.finished,
        "events": len(list(reader.events())),
        "answers": {text: json.loads(render(query(store, text), "json")) for text in QUESTIONS},
    }


def as_expected(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What was observed, without the columns that views have got since."""
    answers = {
        text: [{name: row[name] for name in (known[0] if known else row)} for row in found["answers"][text]]
        for text, known in expected["answers"].items()
    }
    return {**found, "answers": answers}


@pytest.fixture(params=LOGS, ids=[path.name for path in LOGS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(request.param / "run", tmp_path / "runs" / "run")
    shutil.copy(request.param / "expected.json", tmp_path)
    return tmp_path


def test_it_is_audited_and_answers_as_it_always_did(store: Path) -> None:
    expected = json.loads((store / "expected.json").read_text())
    assert RunReader(store / "runs" / "run").verify(expected["chain_head"]) == []
    assert as_expected(observed(store), expected) == expected


def test_it_is_compacted_and_answers_as_it_always_did(store: Path) -> None:
    expected = json.loads((store / "expected.json").read_text())
    compact(store / "runs" / "run")
    assert RunReader(store / "runs" / "run").verify(expected["chain_head"]) == []
    assert as_expected(observed(store), expected) == expected


def test_damage_in_it_is_found(store: Path) -> None:
    for path in (store / "runs" / "run").iterdir():
        whole = path.read_bytes()
        path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
        assert path.name in {finding.file for finding in RunReader(path.parent).verify()}
        path.write_bytes(whole)


def test_its_events_are_lifted_when_a_type_gets_a_new_version(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version says `link` where this one says `src` and `dst`: old logs read as if they were new."""

    class Later(events.payloads.Payload):
        link: list[int]

    def lift(old: dict[str, Any]) -> dict[str, Any]:
        return {"link": [old["src"], old["dst"]]}

    monkeypatch.setitem(events.EVENT_TYPES, "link_failed", events.EventType("link_failed", 2, Later))
    monkeypatch.setitem(events.UPCAST, ("link_failed", 1), lift)
    reader = RunReader(store / "runs" / "run")
    lifted = [event for event in reader.events() if event.type == "link_failed"]
    assert [(event.version, event.payload) for event in lifted] == [(2, {"link": [0, 1]})]
    assert reader.verify() == [], "what is stored, and the digest over it, is as it was"
    monkeypatch.setitem(events.UPCAST, ("link_failed", 1), lambda old: {"link": None})
    (finding,) = reader.verify()
    assert f"event {lifted[0].seq}: link_failed: link" in finding.problem


def test_every_format_is_kept() -> None:
    assert [path.name for path in LOGS] == ["compacted-1", "manifest-1", "manifest-2", "manifest-2-plain"]
    for path in LOGS:
        assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < 100_000


if __name__ == "__main__":
    import tempfile

    from ingest.core.durable import put

    for log in LOGS:
        if not (log / "expected.json").exists():
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(log / "run", Path(folder) / "runs" / "run")
                text = json.dumps(observed(Path(folder)), indent=1, ensure_ascii=False) + "\n"
            put(log / "expected.json", text.encode())
