"""Whether `joint` gains by a price of a domain that is learned from the past.

    nice python -m benchmarks.policy.joint_price --store .twin --keep .twin/joint-price.jsonl
        [--prices 0.3,0.1,...] [--past 5,6,7,8,9] [--worlds 0,1,2,3,4]

What a domain more must bring while other jobs may still come is the one constant of `joint` that stands for
the future. A trial is a price: it runs on draws of jobs that no test has, over links of the end of the
training window, as long as the test window. The price with the most tokens there is the learned one; it then
runs in the worlds of the test window, beside the price that ships and `single`. `--keep` names a file of rows
computed before: these are not computed again.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from pathlib import Path

from benchmarks.policy.joint import Row, measured, rows
from policy.baselines.joint import Joint, Sharing
from policy.core import registry
from twin.scenario.prepare import load, prepare
from twin.settings.window import Window, split
from twin.traces.time_range import TimeRange

SCENARIO = "queue"


def priced(price: float) -> str:
    """Returns the name of `joint` at a price, after making it known to this process."""
    if price == Sharing().price:
        return "joint"
    name = f"joint-{round(1e4 * price)}"
    registry.register(name, lambda: Joint(sharing=Sharing(price)), summary=f"joint, price {price:g}")
    return name


def past_range(store: Path) -> TimeRange:
    """Returns the end of the training window, as long as the test window."""
    end_ns = prepare(load(SCENARIO), store, window="all").wan.end_ns
    begin_ns, _ = split(end_ns, "test")
    return TimeRange(2 * begin_ns - end_ns, begin_ns)


def mean(found: Sequence[Row], policy: str, figure: str) -> float:
    """Returns the mean of a figure of a policy over its worlds."""
    own = [getattr(row, figure) for row in found if row.policy == policy]
    return sum(own) / len(own)


def printed(title: str, found: Sequence[Row], names: Sequence[str]) -> None:
    """Prints a line a policy: tokens, share of those of `joint`, mean stay and waiting."""
    print(title)
    for name in names:
        tokens, stay_s, queued_s = (mean(found, name, one) for one in ("tokens", "mean_stay_s", "queued_s"))
        share = tokens / mean(found, "joint", "tokens")
        print(
            f"  {name:10s} {tokens / 1e6:8.2f} M tokens, {share:.4f} of joint's, "
            f"mean stay {stay_s:8.0f} s, waiting {queued_s:8.0f} s",
            flush=True,
        )


def main() -> None:
    """Learns a price, and tests it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--prices", default="0.3,0.1,0.02,0.01,0.005,0")
    parser.add_argument("--past", default="5,6,7,8,9", help="draws of jobs that prices are learned on")
    parser.add_argument("--worlds", default="0,1,2,3,4", help="draws that the learned price is tested on")
    asked = parser.parse_args()
    past, worlds = ([int(one) for one in text.split(",")] for text in (asked.past, asked.worlds))
    assert not set(past) & set(worlds), "what is tested must not be learned from"
    before = past_range(asked.store)

    def compute(policy: str, world: int) -> Row:
        window: Window | TimeRange = before if world in past else "test"
        return measured(asked.store, SCENARIO, policy, world, window)

    names = [priced(float(price)) for price in asked.prices.split(",")]
    tried = ["joint", *names]
    found = rows(asked.keep, [(name, world) for name in tried for world in past], compute)
    printed("past", found, tried)
    learned = max(tried, key=lambda name: mean(found, name, "tokens"))
    judged = list(dict.fromkeys(["single", "joint", learned]))
    found = rows(asked.keep, [(name, world) for name in judged for world in worlds], compute)
    printed("test window", found, judged)


if __name__ == "__main__":
    main()
