"""Choices of sites learned on the first 60 % of a log, judged on its later 40 % and on logs never trained on:

python -m benchmarks.queue.learned_sites ../shared --kept sites.jsonl --page docs/measured/learned-sites.md

Each judgement is a line of the file that is kept; one that is there is not made again.
"""

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from benchmarks.queue.inputs import Trace, traces
from benchmarks.queue.published import table
from ingest.core import durable
from policy.hippo.queue.site_training import SITE_ORDERS, SiteMethod, best_on_sites, site_rules, train_sites
from policy.hippo.queue.site_windows import GPU_W, SitePart, SitePrices, site_log_slowdowns
from twin.core.seeds import generator
from twin.queue.jobs import Float
from twin.sites.figures import carbon_kg, egress_usd
from twin.sites.inputs import SiteCarbon, SiteChoice, SiteJobs, SiteLinks, single_sites
from twin.sites.simulation import SiteSchedule, SiteWorld

TRAINED, UNSEEN = ("KTH-SP2", "ITP 08"), ("SDSC-SP2", "ITP 04")
SEEDS, WINDOWS, SHARE, MOST_JOBS = 5, 12, 0.6, 10_000
STEPS: dict[SiteMethod, int] = {"ppo": 15, "evolution": 15}
ZONES = {"SG": 0.5, "DE-LU": 0.3, "US-CAL-CISO": 0.2}
"""Sites by the zone of their carbon, with their share of the processors of a log, and of its data."""
USD_PER_GB = ((0.0, 0.09, 0.09), (0.05, 0.0, 0.02), (0.05, 0.02, 0.0))
LINK_KB_S, DATA_GB, DATA_SD = 625_000, 20.0, 1.0
NAMES = {"ppo": "Hi-PPO", "evolution": "Evolution strategy"}
ALONE = tuple(order.removesuffix("+easy") for order in SITE_ORDERS)


def intensities(shared: Path, until_ns: int) -> SiteCarbon:
    """Returns the hours of 2024 in each zone, again and again."""
    columns = []
    for zone in ZONES:
        path = shared / f"energy/carbon-intensity/{zone}_2024_hourly.csv"
        rows = pl.read_csv(path, infer_schema_length=10_000)
        columns.append(np.rint(rows["Carbon Intensity gCO₂eq/kWh (direct)"].to_numpy() * 1e3))
    year = np.stack(columns, axis=1).astype(np.int64)
    hours = int(until_ns // 3_600_000_000_000) + 1
    return SiteCarbon(np.arange(hours) * 3_600_000_000_000, year[np.arange(hours) % len(year)])


def over_sites(shared: Path, trace: Trace) -> SitePart:
    """Returns the first jobs of a log over three sites; jobs larger than the largest site are left out, and
    arrivals come closer by as much as that takes off the load."""
    jobs = trace.jobs.cut_at_estimate().select(slice(MOST_JOBS))
    gpus = np.array([max(1, round(share * trace.processors)) for share in ZONES.values()], np.int64)
    area = jobs.run_ns.astype(float) * jobs.processors
    fits = jobs.processors <= gpus.max()
    closer = area[fits].sum() / area.sum()
    kept = jobs.select(fits)
    submit = np.rint((kept.submit_ns - kept.submit_ns.min()) * closer).astype(np.int64)
    kept = replace(kept, submit_ns=submit)
    random, count = generator(0, f"data of {trace.name}"), len(kept)
    share = np.array(list(ZONES.values()))
    data_kb = np.rint(DATA_GB * 1e6 * np.exp(DATA_SD * random.standard_normal(count))).astype(np.int64)
    sizes, size = np.unique(kept.processors, return_inverse=True)
    asked = SiteJobs(size.astype(np.int64), data_kb, random.choice(3, count, p=share).astype(np.int64))
    kb_s = (LINK_KB_S * (1 - np.eye(3, dtype=np.int64)))[None]
    links = SiteLinks(np.zeros(1, np.int64), kb_s, np.rint(np.array(USD_PER_GB) * 1_000).astype(np.int64))
    carbon = intensities(shared, int(submit.max() + 4 * 365 * 86_400 * 10**9))
    world = SiteWorld(tuple(ZONES), gpus, links, single_sites(sizes, gpus, 1), carbon)
    return SitePart(kept, asked, world)


@dataclass(frozen=True, eq=False)
class SiteJudge:
    """A log in two parts, and the second under the scheduler that costs least on the first."""

    name: str
    first: SitePart
    later: SitePart
    best: str
    begun: tuple[str, SiteChoice]
    base: SiteSchedule
    prices: SitePrices

    @classmethod
    def of(cls, name: str, part: SitePart) -> "SiteJudge":
        first, later = part.split(SHARE)
        order, rule = best_on_sites(first, site_rules(), (*SITE_ORDERS, *ALONE))
        begun = (order, rule) if order in SITE_ORDERS else best_on_sites(first, site_rules())
        base, prices = later.play(order, rule), SitePrices.of(later, SITE_ORDERS[0])
        return cls(name, first, later, f"{order}, {rule.name}", begun, base, prices)

    def judge(self, done: SiteSchedule) -> dict[str, Any]:
        """Returns the difference of costs, one a window, and of its parts, to the best heuristic."""
        both = (done, self.base)
        own, base = (self.prices.costs(one) for one in both)
        slow, slow_base = (site_log_slowdowns(one) for one in both)
        usd, usd_base = (float(egress_usd(one).sum()) for one in both)
        kg, kg_base = (float(carbon_kg(one, GPU_W).sum()) for one in both)
        longest = [float((one.start_ns - one.jobs.submit_ns).max()) / 3.6e12 for one in both]
        return {
            "windows": [float(part.mean()) for part in np.array_split(own - base, WINDOWS)],
            "all": float((own - base).mean()), "slowdown": float((slow - slow_base).mean()),
            "p95": float(np.percentile(slow, 95) - np.percentile(slow_base, 95)),
            "egress": _log_ratio(usd, usd_base), "carbon": _log_ratio(kg, kg_base),
            "longest": _log_ratio(*longest),
        }  # fmt: skip


def _log_ratio(own: float, base: float) -> float:
    return float(np.log(own / base)) if own > 0 and base > 0 else 0.0


def judges(shared: Path) -> dict[str, SiteJudge]:
    """Returns the logs, each with what is best on its first part."""
    found = {}
    for trace in traces(shared):
        if trace.name in (*TRAINED, *UNSEEN):
            found[trace.name] = SiteJudge.of(trace.name, over_sites(shared, trace))
            print(f"{trace.name}: best on the first part is {found[trace.name].best}", flush=True)
        if len(found) == len(TRAINED) + len(UNSEEN):
            break
    return found


def measure(known: dict[str, SiteJudge], kept: Path, seeds: int) -> list[dict[str, Any]]:
    """Returns all judgements, and adds those that are missing to the file."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.is_file() else []
    rows = [json.loads(line) for line in lines]
    have = {(row["method"], row["trained"], row["seed"]) for row in rows}
    wanted = [(seed, name, method) for seed in range(seeds) for name in TRAINED for method in STEPS]
    for seed, name, method in wanted:
        if (method, name, seed) in have:
            continue
        began = time.process_time()
        made = train_sites(known[name].first, method, seed=seed, steps=STEPS[method], begun=known[name].begun)
        row = {"trained": name, **made.provenance, "cpu_s": time.process_time() - began}
        row["judged"] = {
            other: judge.judge(judge.later.play_network(made.order, made.scorer)[0])
            for other, judge in known.items()
        }
        rows.append(row)
        with kept.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(name, method, seed, f"{row['cpu_s']:.0f} s", f"{row['judged'][name]['all']:+.3f}", flush=True)
    return rows


@dataclass(frozen=True, slots=True)
class SiteVerdict:
    """Difference of costs with its 95 % interval over windows, means over seeds; the other figures too."""

    mean: float
    low: float
    high: float
    found: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, found: list[dict[str, Any]]) -> "SiteVerdict":
        windows: Float = np.array([one["windows"] for one in found]).mean(axis=0)
        mean, half = float(windows.mean()), float(stats.t.ppf(0.975, WINDOWS - 1) * stats.sem(windows))
        return cls(mean, mean - half, mean + half, tuple(found))

    def of_figure(self, name: str) -> float:
        """Returns the mean of a figure over seeds."""
        return float(np.mean([one[name] for one in self.found]))

    @property
    def wins(self) -> bool:
        """Costs at least 0.05 less with the interval off 0, and no longer tail."""
        tails = max(self.of_figure("p95"), self.of_figure("longest")) <= np.log(1.05)
        return bool(self.mean <= -0.05 and self.high < 0 and tails)

    def cells(self) -> tuple[str, ...]:
        """Returns the cells of a row."""
        names = ("slowdown", "egress", "carbon", "p95", "longest")
        alone = [one["all"] for one in self.found]
        return (
            f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]",
            f"{min(alone):+.3f} to {max(alone):+.3f}",
            *(f"{np.exp(self.of_figure(name)) - 1:+.1%}" for name in names),
        )


HEADS = ("cost", "least to most of seeds", "slowdown", "egress", "carbon", "p95", "longest wait")


def verdicts(rows: list[dict[str, Any]], method: str) -> dict[tuple[str, str], SiteVerdict]:
    """Returns the verdict of each (trained on, judged on)."""
    found = defaultdict(list)
    for row in rows:
        if row["method"] == method:
            for name, one in row["judged"].items():
                found[row["trained"], name].append(one)
    return {pair: SiteVerdict.of(given) for pair, given in found.items()}


def verdict_of(rows: list[dict[str, Any]], method: str) -> str:
    """Returns the verdict in a sentence."""
    found = verdicts(rows, method)
    own = [one for (trained, judged), one in found.items() if trained == judged]
    wins, worse = sum(one.wins for one in own), sum(one.mean > 0.02 for one in found.values())
    full = len([row for row in rows if row["method"] == method]) == SEEDS * len(TRAINED)
    clears = full and wins == len(own) and not worse
    return (
        f"**{NAMES[method]} over sites {'clears' if clears else 'does not clear'} the bar**: it costs at "
        f"least 0.05 less than the best heuristic, with the interval off 0 and no longer tail, on {wins} of "
        f"{len(own)} logs of its training, and more than 0.02 more in {worse} of {len(found)} judgements."
    )


def section(rows: list[dict[str, Any]], known: dict[str, SiteJudge], method: str) -> str:
    """Returns the table of a method."""
    used = [row for row in rows if row["method"] == method]
    minutes = [row["cpu_s"] / 60 for row in used]
    same = sum(row["validation"]["cost"] == row["validation"]["rule"] for row in used)
    begun = sorted({f"{row['trained']}: {row['order']}, {row['rule']}" for row in used})
    lines = [(a, b, known[b].best, *one.cells()) for (a, b), one in verdicts(rows, method).items()]
    return f"""## {NAMES[method]}
{used[0]["steps"]} steps, {np.mean(minutes):.1f} minutes of a core a training ({min(minutes):.1f} to
{max(minutes):.1f}; the choice of the heuristic to begin at is not in it).
Begun at {"; ".join(begun)}. {same} of {len(used)} trainings found nothing better on their validation part
and kept that rule.

{table(("trained on", "judged on", "best heuristic", *HEADS), iter(lines))}
"""


def rules_of(judge: SiteJudge) -> str:
    """Returns the table of every rule in the order of the best heuristic, on the later part."""
    order = judge.best.split(",")[0]
    done = [
        (rule.name, SiteVerdict.of([judge.judge(judge.later.play(order, rule))])) for rule in site_rules()
    ]
    return f"""### {judge.name}, {order}
{table(("rule", HEADS[0], *HEADS[2:]), ((name, one.cells()[0], *one.cells()[2:]) for name, one in done))}
"""


def page(rows: list[dict[str, Any]], known: dict[str, SiteJudge]) -> str:
    """Returns the page."""
    seeds = len({row["seed"] for row in rows})
    made, asked = len(rows), SEEDS * len(TRAINED) * len(STEPS)
    short = f"**{made} of {asked} trainings are made: the command makes those that are missing.**"
    least = min(price for row in USD_PER_GB for price in row if price)
    sites = ", ".join(f"{name} ({share:.0%})" for name, share in ZONES.items())
    return f"""# A learned choice of sites, judged

Written by `python -m benchmarks.queue.learned_sites ../shared --kept sites.jsonl --page
docs/measured/learned-sites.md`.

{verdict_of(rows, "ppo")}

{verdict_of(rows, "evolution")}

{short if made < asked else ""}

**SYNTHETIC worlds**: the jobs are those of logs (the first {MOST_JOBS:,}; those larger than the largest
site left out, arrivals closer by as much as that takes off the load), and the carbon intensities are the
measured hours of 2024; the sites are assumed: {sites} of the processors
of each log, data of {DATA_GB:g} GB in the median (log-normal, sd {DATA_SD:g}) at sites drawn by the same
shares, links of {LINK_KB_S * 8 / 1e6:g} Gb/s, egress of {least} to {max(map(max, USD_PER_GB))} USD a GB.

A job costs its log bounded slowdown plus its egress plus its carbon, each of the two over the mean under
`fcfs+easy` and `fastest`: 0.01 is 1 % of slowdown, of that egress, or of that carbon. The judge: of
{len(SITE_ORDERS) + len(ALONE)} orders ({", ".join(f"`{one}`" for one in ALONE)}, alone and inside EASY) with
{len(site_rules())} rules of sites ({", ".join(f"`{one.name}`" for one in site_rules())}),
the pair that costs least on the first 60 % of a log is to be beaten on the later 40 %, which the network
plays without learning on. The network chooses the site of each job, or to wait for one, over features of the
(job, site) pair, in the order that its training began at; intensities are those of the moment.

Cells are differences to that heuristic, negative is better; in brackets 95 % intervals (Student's t) over
{WINDOWS} windows of the later part, each the mean over the seeds (up to {seeds}). The bar: costs 0.05 lower
with the interval off 0 on every log of training, nowhere more than 0.02 higher, p95 and longest wait at most
5 % longer. [+0.000, +0.000] is the schedule of the heuristic itself, not a precise measurement.

{section(rows, known, "ppo")}
{section(rows, known, "evolution")}
## The rules themselves
{"".join(rules_of(judge) for judge in known.values())}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--kept", type=Path, required=True, help="file of judgements, one a line")
    parser.add_argument("--page", type=Path, help="file to write [standard output]")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="trainings of each log and method")
    said = parser.parse_args()
    known = judges(said.shared)
    text = page(measure(known, said.kept, said.seeds), known)
    if said.page is None:
        print(text)
    else:
        durable.replace(said.page, text.encode())


if __name__ == "__main__":
    main()
