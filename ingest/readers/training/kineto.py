"""Traces of the PyTorch profiler (Kineto): steps and GPU kernels of a Chrome trace.

`traceEvents` are read one by one, so the size of a trace does not matter. A `ProfilerStep#N` of the CPU
gives a row of `step_times`; kernels and copies on the GPU (`cat` kernel, gpu_memcpy, gpu_memset) give
rows of `op_times`, with `start_s` counted from the first event of the file. `ts` and `dur` are in us.
`source_row` is the number of the event. Definition: Chrome trace event format; PyTorch, `torch.profiler`.
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.core.units import US
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, number, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, RowBuilder
from ingest.parsing.source import BOM, Source

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,6})')
_CHUNK, _MOST = 1 << 20, 1 << 24
_FLUSH = 1 << 15


class Kineto:
    """Profiler traces."""

    name = "kineto"
    version = 1
    by_name = True
    tables = ("step_times", "op_times")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for a Chrome trace that the PyTorch profiler wrote."""
        start = head.removeprefix(BOM).lstrip()
        marks = (b'"schemaVersion"', b'"deviceProperties"', b'"ProfilerStep#', b'"distributedInfo"')
        return start.startswith(b"{") and any(mark in head for mark in marks) and b'"nodes"' not in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each profiled step and each kernel."""
        rank = _RANK.search(source.head)
        named = {"job": source.path.stem, "worker": rank[1].decode() if rank else None}
        steps = RowBuilder("step_times", ("step", "time_s"), kind="step", **named)
        ops = RowBuilder("op_times", ("op", "start_s", "time_s"), **named)
        first: float | None = None
        for row, event in enumerate(_events(source), 1):
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            try:
                first = number(event["ts"]) if first is None else first
            except FAULTS as error:
                ops.reject(row, "ts", event, error)
                continue
            step = _STEP.fullmatch(str(event.get("name", "")))
            if event.get("cat") in _ON_GPU:
                ops.take(row, "event", event, _op, event, first)
            elif step and event.get("cat") != "gpu_user_annotation":
                steps.take(row, "event", event, _step, int(step[1]), event)
            if len(steps) + len(ops) >= _FLUSH:
                yield steps.batch()
                yield ops.batch()
        yield steps.batch()
        yield ops.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "kineto: profiled steps are slower than others; start_s counts from the first event of a trace",
        )


def _step(step: int, event: dict[str, Any]) -> tuple[int, float]:
    return whole(step), amount(event["dur"]) * US


def _op(event: dict[str, Any], first: float) -> tuple[str, float, float]:
    start_s = max(0.0, (number(event["ts"]) - first) * US)
    return text(event["name"])[:200], start_s, amount(event["dur"]) * US


def _events(source: Source) -> Iterator[Any]:
    """The elements of `traceEvents`, with no more than one of them and a chunk in memory.

    Raises:
        InputError: there is no such list, it is cut, or an event is absurdly long.
    """
    decoder, read = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    held, begun = "", False
    with source.open() as stream:
        while chunk := stream.read(_CHUNK):
            held += read.decode(chunk)
            if not begun:
                found = _EVENTS.search(held)
                if found is None:
                    held = held[-64:] if len(held) > _MOST else held
                    continue
                held, begun = held[found.end() :], True
            at = 0
            while True:
                at = _past_commas(held, at)
                if held[at : at + 1] == "]":
                    return
                try:
                    event, at = decoder.raw_decode(held, at)
                except (ValueError, RecursionError):
                    break
                yield event
            held = held[at:]
            if len(held) > _MOST:
                raise InputError(f"{source.shown}: not a readable event: {held[:60]!r}")
    raise InputError(f"{source.shown}: " + ("its traceEvents are cut" if begun else "no traceEvents"))


def _past_commas(text: str, at: int) -> int:
    while at < len(text) and text[at] in ", \t\r\n":
        at += 1
    return at
