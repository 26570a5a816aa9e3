"""Lineage of checkpoints: parent, data, code, verdict and scores, from the logs of trainings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.store import layout

Json = dict[str, Any]
SCORES = ("tokens", "utilisation", "usd_per_token")


@dataclass(frozen=True, slots=True)
class LineageRecord:
    """One training or retraining that made a checkpoint."""

    run_id: str
    checkpoint: str
    parent: str | None  # the checkpoint that it was trained from; None: from scratch
    cause: str | None
    data: Json  # data set, window and trace digests that it was trained on
    code: Json
    verdict: str | None  # promoted, rejected, or None without a verdict
    reason: str | None
    scores: Json  # role -> mean of `SCORES` over the evaluation worlds

    def to_json(self) -> Json:
        """All fields by name."""
        return asdict(self)


def records(store: Path) -> tuple[LineageRecord, ...]:
    """Returns every training and retraining of the store that made a checkpoint, by run."""
    return tuple(_records(store))


def _records(store: Path) -> Iterator[LineageRecord]:
    for run_id in layout.all_ids(store):
        if not any(f"-{operation}-s" in run_id for operation in ("train", "retrain")):
            continue  # the name of a run has its policy: no other log is opened
        reader = RunReader(layout.folder(store, run_id))
        if not reader.manifests():
            continue
        header = reader.header()
        if header["policy"] == "train" and header["checkpoint"]:
            (*_, last) = reader.events()
            parent = last.payload.get("totals", {}).get("parent")
            yield LineageRecord(
                run_id, header["checkpoint"], parent, None, _data(header), header["code"], None, None, {}
            )
        elif header["policy"] == "retrain":
            yield from _retrained(run_id, list(reader.events()))


def _retrained(run_id: str, events: list[Event]) -> Iterator[LineageRecord]:
    """Yields the record of a retraining; nothing if it was killed before it had a challenger."""
    header = events[0].payload
    steps = {e.payload["step"]: e.payload["details"] for e in events if e.type == "retraining_step"}
    judged = next((e for e in events if e.type in ("policy_promoted", "policy_rejected")), None)
    made = steps.get("trained", {}).get("checkpoint") or (judged and judged.payload["checkpoint"])
    if made:
        yield LineageRecord(
            run_id=run_id,
            checkpoint=made,
            parent=header["checkpoint"],
            cause=steps.get("due", {}).get("cause"),
            data=steps.get("collected") or _data(header),
            code=header["code"],
            verdict=None if judged is None else judged.type.removeprefix("policy_"),
            reason=None if judged is None else judged.payload["reason"],
            scores={role: _scores(events, role) for role in ("champion", "challenger")},
        )


def _data(header: Json) -> Json:
    return {name: header[name] for name in ("dataset", "window", "origin_epoch_ns", "end_ns", "traces")}


def _scores(events: list[Event], role: str) -> Json:
    """Returns the mean scores of a role over its evaluation worlds."""
    said = [e.payload["scores"] for e in events if e.type == "policy_evaluated" and e.payload["role"] == role]
    values = {name: [one[name] for one in said if one.get(name) is not None] for name in SCORES}
    return {name: sum(found) / len(found) if found else None for name, found in values.items()}
