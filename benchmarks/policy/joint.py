"""Compare policies on several jobs that share GPUs and links, beside what can be reached.

    python -m benchmarks.policy.joint --store .twin --keep .twin/joint.jsonl

Worlds are draws of ten jobs each from the arrivals of the scenario. Of each run: tokens (with the part of the
iteration under way), work (tokens times parameters), jobs done, mean stay (from submission until a job is
done, or to the end of the window), time before the first GPUs. `reach` is the most tokens of a linear
program over the intervals between arrivals: every job trains no faster than its best plan found with the
whole cluster and all links at their highest bandwidth of the window, and all jobs together use no more GPU
seconds than there are, without bubbles and links. No policy sees that future. `--keep` names a file of rows
computed before: these are not computed again.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from ingest.core.units import NS_PER_S
from policy.bound import capacity
from policy.control.long_run import samples_of, typical_links
from policy.search.plan_search import best_plans
from replay.bench.load import next_jobs
from replay.log.run_log import RunReader
from replay.metrics.paired_comparison import student
from replay.run import runner
from replay.store import run_index
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.scenario.prepare import PreparedScenario, load, prepare
from twin.settings.window import Window
from twin.traces.time_range import TimeRange

POLICIES = ("static", "single", "greedy", "mpc", "hippo", "joint")
ALL = 4000
FIGURES = ("tokens", "work", "done", "mean_stay_s", "queued_s")


@dataclass(frozen=True)
class Row:
    """One policy in one world; work in tokens x parameters."""

    policy: str
    world: int
    tokens: float
    work: float
    done: int
    mean_stay_s: float
    queued_s: float


def measured(store: Path, scenario: str, policy: str, world: int, window: Window | TimeRange = "test") -> Row:
    """Returns the row of a run, from its log; the store's run is taken where there is one."""
    chosen = next_jobs(load(scenario), world)
    found = runner.run(store, policy=policy, scenario=chosen, window=window, seed=world, reuse=True)
    setup = prepare(chosen, store, window=window, seed=world)
    left = {job.name: setup.wan.end_ns for job in setup.jobs}
    tokens: dict[str, float] = defaultdict(float)
    done = 0
    for event in RunReader(run_index.folder(store, found.run_id)).events():
        if event.type == "iteration_done":
            tokens[event.job] += event.payload["tokens"]
        elif event.type == "time_lost":
            tokens[event.job] += event.payload.get("part_tokens", 0.0)
        elif event.type == "work_lost":
            tokens[event.job] -= event.payload["lost_tokens"]
        elif event.type == "job_finished":
            left[event.job], done = event.sim_ns, done + 1
    work = sum(tokens[job.name] * job.spec.model.parameters for job in setup.jobs)
    stay_s = float(np.mean([(left[job.name] - job.submit_ns) / NS_PER_S for job in setup.jobs]))
    return Row(policy, world, sum(tokens.values()), work, done, stay_s, found.kpis.queued_s)


def reach_tokens(setup: PreparedScenario) -> float:
    """Returns the most tokens of all jobs of a world (see above)."""
    ends_ns = sorted({*(job.submit_ns for job in setup.jobs), setup.wan.end_ns})
    length_s = np.diff(ends_ns) / NS_PER_S
    specs = {job.spec.model.name: job.spec for job in setup.jobs}
    alone = {name: _alone(setup, spec) for name, spec in specs.items()}
    gpus = sum(domain.gpus for domain in setup.cluster.domains)
    gpu_s = {name: gpus / capacity.tokens_per_s(setup.estimator(spec)) for name, spec in specs.items()}
    shape = (len(setup.jobs), len(length_s))
    most, held, total = np.zeros(shape), np.zeros((shape[1], *shape)), np.zeros((shape[0], *shape))
    for n, job in enumerate(setup.jobs):
        name, present = job.spec.model.name, np.array(ends_ns[:-1]) >= job.submit_ns
        most[n] = np.where(present, length_s * alone[name], 0.0)
        held[np.arange(shape[1]), n, np.arange(shape[1])] = gpu_s[name]
        total[n, n] = 1.0
    each = ((job.tokens, job.spec.tokens_per_iteration) for job in setup.jobs)
    asked = [np.inf if tokens is None else tokens + last for tokens, last in each]
    limits = np.concatenate([held.reshape(shape[1], -1), total.reshape(shape[0], -1)])
    found = linprog(
        -np.ones(most.size),
        A_ub=limits,
        b_ub=np.concatenate([gpus * length_s, np.minimum(asked, most.sum(axis=1))]),
        bounds=[(0.0, high) for high in most.ravel().tolist()],
    )
    assert found.fun is not None, found.message
    return -float(found.fun)


def _alone(setup: PreparedScenario, spec: JobSpec) -> float:
    """Returns tokens per second of the best plan found with all GPUs and links at their highest."""
    size = setup.cluster.size
    bandwidth, latency = np.full((size, size), np.inf), np.zeros((size, size))
    for (i, j), series in setup.wan.series.items():
        bandwidth[i, j], latency[i, j] = series.bandwidth_bps.max(), series.latency_s.min()
    gpus = [domain.gpus for domain in setup.cluster.domains]
    estimator = setup.estimator(spec)
    plan, ns = best_plans(estimator, LinkState(bandwidth, latency), free_gpus=gpus, top=1)[0]
    return estimator.tokens(plan) * NS_PER_S / ns


def times_by_regions(setup: PreparedScenario) -> list[str]:
    """Returns a line a model: number of regions, seconds of the best plan found under typical past links."""
    assert setup.history is not None
    states = samples_of(setup.history)
    links = typical_links(states, np.ones(len(states)))
    gpus = [domain.gpus for domain in setup.cluster.domains]
    lines = []
    for spec in {job.spec.model.name: job.spec for job in setup.jobs}.values():
        best: dict[int, float] = {}
        for plan, ns in best_plans(setup.estimator(spec), links, free_gpus=gpus, top=ALL):
            best.setdefault(len(plan.order), ns / NS_PER_S)
        each = "  ".join(f"{count}: {seconds:.1f}" for count, seconds in sorted(best.items()))
        lines.append(f"{spec.model.name}: {each}")
    return lines


def rows(keep: Path, cells: Sequence[tuple[str, int]], compute: Callable[[str, int], Row]) -> list[Row]:
    """Returns the row of each cell; new ones are added to the file `keep`."""
    known = [Row(**json.loads(line)) for line in keep.read_text().splitlines()] if keep.exists() else []
    found = {(row.policy, row.world): row for row in known}
    for cell in cells:
        if cell not in found:
            found[cell] = compute(*cell)
            with keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found[cell])) + "\n")
    return [found[cell] for cell in cells]


def table(found: Sequence[Row], policies: Sequence[str]) -> list[str]:
    """Returns one line a policy: means over worlds."""
    lines = ["| policy | tokens, 1e6 | work, 1e18 | jobs done | mean stay, s | waiting, s |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for policy in policies:
        own = np.array([[getattr(r, figure) for figure in FIGURES] for r in found if r.policy == policy])
        tokens, work, done, stay_s, queued_s = own.mean(axis=0)
        lines.append(
            f"| `{policy}` | {tokens / 1e6:.1f} | {work / 1e18:.1f} | {done:.1f} | {stay_s:,.0f} |"
            f" {queued_s:,.0f} |"
        )
    return lines


def paired(found: Sequence[Row], policies: Sequence[str], against: str) -> list[str]:
    """Returns one line for each other policy: what `against` gains over it in the same worlds."""
    of = {(row.policy, row.world): row for row in found}
    worlds = sorted({row.world for row in found})
    lines = [f"| `{against}` over | tokens, % | work, % | mean stay, % |", "|---|---:|---:|---:|"]
    for policy in policies:
        if policy == against:
            continue
        cells = []
        for figure in ("tokens", "work", "mean_stay_s"):
            both = [[getattr(of[name, w], figure) for w in worlds] for name in (against, policy)]
            change = student(figure, 100.0 * (np.array(both[0]) / np.array(both[1]) - 1.0))
            interval = f" [{change.low:+.1f}, {change.high:+.1f}]" if len(worlds) > 1 else ""
            cells.append(f"{change.mean:+.1f}{interval}")
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Prints the tables of the worlds asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--scenario", default="queue")
    parser.add_argument("--worlds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--only-runs", action="store_true", help="compute and keep rows, print no table")
    arguments = parser.parse_args()
    store, policies = arguments.store, arguments.policies

    cells = [(policy, world) for world in arguments.worlds for policy in policies]
    found = rows(arguments.keep, cells, lambda *cell: measured(store, arguments.scenario, *cell))
    if arguments.only_runs:
        return
    for world in arguments.worlds:
        chosen = next_jobs(load(arguments.scenario), world)
        print(*times_by_regions(prepare(chosen, store, window="test", seed=world)), sep="\n")
    print("\n".join(table(found, policies)), "\n", *paired(found, policies, policies[-1]), sep="\n")
    print("\nworld: tokens of each policy, 1e6; reach; share of it that the last policy has")
    for world in arguments.worlds:
        chosen = next_jobs(load(arguments.scenario), world)
        reach = reach_tokens(prepare(chosen, store, window="test", seed=world))
        own = [row.tokens for row in found if row.world == world]
        figures = "  ".join(f"{tokens / 1e6:7.1f}" for tokens in own)
        print(f"{world}: {figures}  {reach / 1e6:7.1f}  {own[-1] / reach:.3f}")


if __name__ == "__main__":
    main()
