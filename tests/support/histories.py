"""A made-up run with every kind of event, for tests of log, SQL and report; no physics inside."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replay.log import chain_heads, segment
from replay.log.run_log import RunReader, RunWriter
from replay.log.running_digests import Streams
from replay.log.tail import TailWriter

Row = tuple[int, str, dict[str, Any], dict[str, Any]]
"""(sim_ns, type, payload, wall)."""

NAMES = ("oslo", "guizhou", "shanghai")
PERIOD_NS = 300 * 10**9
TICK_NS = 30 * 10**9
ITERATION_NS = 10 * 10**9


def started(policy: str = "mpc", seed: int = 0) -> dict[str, Any]:
    domains = [{"name": name, "gpus": 4} for name in NAMES]
    scenario = {
        "name": "made-up",
        "about": "",
        "cluster": {"domains": domains},
        "wan": {"dataset": "synthetic-tri"},
    }
    return {
        "scenario": {**scenario, "model": "llama-2-7b"},
        "policy": policy,
        "seed": seed,
        "engine": "kernel",
        "window": "test",
        "dataset": None,
        "checkpoint": None,
        "config_digest": "ab" * 32,
        "code": {"version": "0.1.0", "sources": "cd" * 32},
        "traces": {"wan": "ef" * 32},
        "note": "made up for tests",
        "end_ns": 3600 * 10**9,
        "origin_epoch_ns": 1_700_000_000 * 10**9,
        "enforce_deadline": False,
    }


def plan(first: int = 0, layers: int = 20) -> dict[str, Any]:
    shares = [
        {"domain": first, "layers": layers, "tp": 1, "pp": 2, "gpus": [0, 1]},
        {"domain": (first + 1) % 3, "layers": 34 - layers, "tp": 1, "pp": 2, "gpus": [0, 1]},
    ]
    rest = {"schedule": "1f1b", "extra_warmup": 0, "p2p": "blocking", "recompute": "full", "zero": 1}
    return {"shares": shares, "dp": 1, "micro_batch": 1, "micro_batches": 16, **rest}


def history(decisions: int = 12, policy: str = "mpc", seed: int = 0) -> Iterator[Row]:
    """Events of a run with `decisions` decisions, without `run_finished`; a move at every fourth."""
    yield 0, "run_started", started(policy, seed), {"environment": {"python": "3.11"}}
    now, iteration = 0, 0
    for number in range(decisions):
        yield from _decision(now, number)
        if number % 4 == 0:
            pause_ns = 0 if number == 0 else 20 * 10**9
            yield now + pause_ns, "plan_applied", _applied(now, number, pause_ns), {}
        else:
            pause_ns = 0
        for tick in range(1, 1 + (PERIOD_NS - pause_ns) // TICK_NS):
            start_ns = now + pause_ns + (tick - 1) * TICK_NS
            yield start_ns + TICK_NS, "link_observed", _observed(start_ns), {}
            yield start_ns + TICK_NS, "iteration_done", _done(start_ns, iteration), {}
            iteration += 3
        lost_ns = (PERIOD_NS - pause_ns) % TICK_NS
        now += PERIOD_NS
        if lost_ns:
            yield now, "time_lost", _lost(now - lost_ns, lost_ns), {}
    yield now, "link_failed", {"src": 0, "dst": 1}, {}
    yield now, "link_restored", {"src": 0, "dst": 1}, {}
    yield now, "gpu_failed", {"domain": 2, "gpus": 1, "free": 3, "lost_iterations": 0, "lost_tokens": 0}, {}
    yield now, "gpu_repaired", {"domain": 2, "gpus": 1, "free": 4}, {}
    yield now, "domain_slowed", {"domain": 1, "factor": 1.25}, {}


def totals(decisions: int = 12) -> dict[str, Any]:
    """Some totals; whether they agree with the events is for the audit's own tests."""
    sums = {"iterations": decisions * 30, "tokens": decisions * 30 * 65536, "plans": math.ceil(decisions / 4)}
    return {**sums, "egress_usd": 1.5, "gpu_usd": 10.0}


def write(run_dir: Path, decisions: int = 12, *, policy: str = "mpc", **options: Any) -> tuple[str, str]:
    """A finished run on the disk; returns (digest, chain head)."""
    with RunWriter.create(run_dir, **options) as writer:
        for sim_ns, kind, payload, wall in history(decisions, policy):
            writer.append(sim_ns, kind, payload, wall=wall)
        return writer.finish(totals(decisions), sim_ns=decisions * PERIOD_NS)


def killed(run_dir: Path) -> None:
    """Leave the run as a writer killed before its last event does: the newest segment is in the tail."""
    rows = [row for table in RunReader(run_dir).tables() for row in segment.rows_of(table)][:-1]
    lose_end(run_dir)
    digests, sealed = Streams(), RunReader(run_dir).contents()
    digests.add(rows[: sealed.end])
    lines, walls = digests.add(rows[sealed.end :])
    writer = TailWriter(run_dir, sealed.end, sealed.head)
    writer.append(sealed.end, len(rows) - sealed.end, lines, walls, digests.stream)
    writer.close()


def lose_end(run_dir: Path) -> None:
    """Take the newest segment away, as if the writer had been killed before that commit."""
    last = max(run_dir.glob("*.json"))
    last.with_suffix(".parquet").unlink()
    last.unlink()
    if (record := chain_heads.path_of(run_dir)) is not None:
        record.unlink()


def bandwidth_bps(now_ns: int, i: int, j: int) -> float:
    """A slow wave per link, with a deep dip on 0 > 1 in the middle."""
    hours = now_ns / 3600e9
    wave = 2e9 + 4e8 * math.sin(7 * hours + i + 2 * j)
    return wave * (0.2 if (i, j) == (0, 1) and 0.4 < hours < 0.6 else 1.0)


def _pairs() -> list[tuple[int, int]]:
    return [(i, j) for i in range(3) for j in range(3) if i != j]


def _observed(at_ns: int) -> dict[str, Any]:
    noise = [1 + 0.03 * math.sin(at_ns / 1e9 * 13 + n) for n in range(6)]
    samples = [
        [i, j, bandwidth_bps(at_ns, i, j) * x, 0.04] for (i, j), x in zip(_pairs(), noise, strict=True)
    ]
    return {"sampled_ns": at_ns, "samples": samples}


def _decision(now: int, number: int) -> Iterator[Row]:
    links = [[i, j, bandwidth_bps(now, i, j), 0.05, 0.04] for i, j in _pairs()]
    yield now, "state_estimated", {"links": links}, {}
    trigger = "start" if number == 0 else "period"
    yield now, "triggered", {"number": number, "trigger": trigger, "reasons": {trigger: []}}, {}
    moves = number % 4 == 0
    best = plan(number // 4 % 3, 20 - number // 4)
    candidates = [
        {"plan": best, "score": 1.0, "iter_s": 10.0, "utilisation": 0.6, "usd": 0.01},
        {"plan": plan(1, 18), "score": 0.9, "iter_s": 10.5, "utilisation": 0.58, "usd": 0.012},
    ]
    matrix = [[None if i == j else bandwidth_bps(now, i, j) for j in range(3)] for i in range(3)]
    observation = {"now_ns": now, "trigger": trigger, "horizons_s": [0.0], "bandwidth_bps": [matrix]}
    decided = {
        "number": number,
        "action": "move" if moves else "hold",
        "plan": best if moves else None,
        "reason": "a better plan pays for its move" if moves else "no plan is worth its move",
        "candidates": candidates,
        "predicted_iter_s": 10.0,
        "log_probability": None,
        "mask": [],
        "fallback": "deadline of 1 s missed" if number == 5 else None,
        "extra": {},
        "observation_digest": "0" * 64,
        "observation": observation,
    }
    yield now, "decided", decided, {"latency_s": 0.001 * (number + 1), "coordination_s": 0.002 * (number + 1)}


def _applied(now: int, number: int, pause_ns: int) -> dict[str, Any]:
    charges = {"egress_usd": 0.02 if number else 0.0, "gpu_ns": 4 * pause_ns, "gpu_usd": 0.1, "energy_j": 5e3}
    moved = [[0, 1, 7_000_000_000]] if number else []
    return {
        "plan": plan(number // 4 % 3, 20 - number // 4),
        "gpus": [2, 2, 0],
        "started_ns": now,
        "pause_ns": pause_ns,
        "restart_ns": min(pause_ns, 11 * 10**9),
        "moved_bytes": moved,
        **charges,
    }


def _done(start_ns: int, first: int) -> dict[str, Any]:
    charges = {"egress_usd": 0.01, "gpu_ns": 4 * TICK_NS, "gpu_usd": 0.066, "energy_j": 4.8e4}
    return {
        "count": 3,
        "first": first,
        "start_ns": start_ns,
        "durations": [[3, ITERATION_NS]],
        "tokens": 3 * 65536,
        "stalled_ns": 0,
        "compute_ns": [int(0.6 * TICK_NS), int(0.5 * TICK_NS), 0],
        "active_ns": [TICK_NS, TICK_NS, 0],
        "gpu_compute_ns": int(2.2 * TICK_NS),
        "wan_bytes": [[0, 1, 2_000_000_000], [1, 0, 2_000_000_000]],
        **charges,
    }


def _lost(start_ns: int, lost_ns: int) -> dict[str, Any]:
    charges = {"egress_usd": 0.0, "gpu_ns": 4 * lost_ns, "gpu_usd": 0.01, "energy_j": 1e3}
    return {
        "reason": "horizon",
        "start_ns": start_ns,
        "lost_ns": lost_ns,
        "stalled_ns": 0,
        "wan_bytes": [],
        "moved_bytes": [],
        **charges,
    }
