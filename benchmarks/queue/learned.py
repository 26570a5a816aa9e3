"""Orders learned on the first 60 % of a log, judged on its later 40 % and on logs never trained on:

python -m benchmarks.queue.learned ../shared --kept learned.jsonl --page docs/measured/learned-queue.md

Each judgement is a line of the file that is kept; one that is there is not made again. With --only METHOD
the page keeps what it says of the others.
"""

import argparse
import json
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.queue.learned_judge import (
    AGED,
    ORDERS,
    SEEDS,
    TRAINED,
    WINDOWS,
    Judge,
    Verdict,
    judges,
    ratio,
    recipes,
)
from benchmarks.queue.published import table
from ingest.core.durable import replace
from policy.hippo.queue.rollout import starts
from policy.hippo.queue.training import Method, train
from policy.queue.registry import recipe
from twin.queue.simulation import simulate

STEPS: dict[Method, int] = {"ppo": 25, "evolution": 40, "dd-ppo": 25, "sla-morl": 25}


def measure(known: dict[str, Judge], kept: Path, seeds: int, only: list[Method]) -> list[dict[str, Any]]:
    """Returns all judgements, and adds those that are missing to the file."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.is_file() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["method"], row["trained"], row["seed"]) for row in rows}
    for seed in range(seeds):
        for name in TRAINED:
            for method in only:
                steps = STEPS[method]
                if (method, name, seed) in done:
                    continue
                began = time.process_time()
                order = train([known[name].first], method, seed=seed, steps=steps)
                row = {"method": method, "trained": name, "seed": seed, **order.provenance}
                row["cpu_s"], row["judged"] = time.process_time() - began, {}
                for other, judge in known.items():
                    row["judged"][other] = judge.judge(starts(judge.later, order.scorer))
                rows.append(row)
                with kept.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(
                    name,
                    method,
                    seed,
                    f"{row['cpu_s']:.0f} s",
                    ratio(row["judged"][name]["all"]),
                    flush=True,
                )
    return rows


NAMES: dict[Method, str] = {
    "ppo": "Hi-PPO", "evolution": "Evolution strategy", "dd-ppo": "DD-PPO", "sla-morl": "SLA-MORL"
}  # fmt: skip
ABOUT: dict[Method, str] = {
    "ppo": "Rewards beside the heuristic's (`policy/hippo/queue/ppo.py`).",
    "evolution": "The control, 67 weights, whole windows alone (`policy/hippo/queue/evolution.py`).",
    "dd-ppo": "After Sgambati, Vakanski and Anderson (arXiv:2505.03946), from its abstract: six workers, the "
    "mean of their\ngradients, late ones stopped early, rewards without a heuristic "
    "(`policy/hippo/queue/dd_ppo.py`).",
    "sla-morl": "After Mostafa, Mohan and Wang (arXiv:2508.03509), from its abstract, **an adaptation**: the "
    "jobs of these logs\nare rigid, so that it chooses jobs, not GPUs; two objectives, time and agreements "
    "kept, whose weights follow\nviolations (`policy/hippo/queue/sla_morl.py`).",
}
"""What each method is, for its section."""
Rows = list[dict[str, Any]]
HEADS = (
    "trained on", "judged on", "best heuristic", "geometric mean slowdown", "least to most of seeds", "p95",
    "longest wait",
)  # fmt: skip


def verdicts(rows: Rows, method: str) -> dict[tuple[str, str], Verdict]:
    """Returns the verdict of each (trained on, judged on)."""
    found = defaultdict(list)
    for row in rows:
        if row["method"] == method:
            for name, one in row["judged"].items():
                found[row["trained"], name].append(one)
    return {pair: Verdict.of(given) for pair, given in found.items()}


def verdict_of(rows: Rows, method: Method) -> str:
    """Returns the verdict in a sentence."""
    found = verdicts(rows, method)
    own = [one for (trained, judged), one in found.items() if trained == judged]
    wins = sum(one.wins for one in own)
    worse = sum(one.mean > np.log(1.02) for one in found.values())
    clears = wins >= 4 and not worse and sum(row["method"] == method for row in rows) == SEEDS * len(TRAINED)
    mean = ratio(float(np.mean([one.mean for one in own])))
    return (
        f"**{NAMES[method]} {'clears' if clears else 'does not clear'} the bar**: it is at least 5 % lower, "
        f"with the interval off 0 and no longer tail, on {wins} of {len(own)} logs of its training (mean "
        f"{mean}), and more than 2 % worse in {worse} of {len(found)} judgements."
    )


def section(rows: Rows, known: dict[str, Judge], method: Method) -> str:
    """Returns the tables of a method."""
    found, used = verdicts(rows, method), [row for row in rows if row["method"] == method]
    minutes = np.array([row["cpu_s"] for row in used]) / 60
    kept = sum(row["validation"]["geometric_mean"] == row["validation"]["imitated"] for row in used)
    least = min(sum(row["trained"] == name for row in used) for name in TRAINED)
    short = "" if least == SEEDS else f"\n**{len(used)} of {SEEDS * len(TRAINED)} trainings are made.**"
    tables = [
        table(
            HEADS, ((a, b, known[b].best, *one.cells()) for (a, b), one in found.items() if (a == b) == same)
        )
        for same in (True, False)
    ]
    return f"""## {NAMES[method]}
{ABOUT[method]}
Imitation, then {STEPS[method]} steps: {minutes.mean():.1f} minutes of a core a training
({minutes.min():.1f} to {minutes.max():.1f}, judging included). {kept} of {len(used)} trainings found nothing
better on their validation part and kept the imitated order.{short}

{tables[0]}

On logs never trained on:

{tables[1]}
"""


def imitated(rows: Rows, known: dict[str, Judge]) -> str:
    """Returns the table of the heuristics that trainings began at, themselves, inside EASY."""
    begun = {row["trained"]: row["heuristic"] for row in rows}
    lines = []
    for name, order in begun.items():
        judge = known[name]
        done = simulate(judge.later.jobs, judge.later.processors, recipe(f"{order}+easy"))
        lines.append((name, f"{order}+easy", judge.best, *Verdict.of([judge.judge(done.start_ns)]).cells()))
    return table(("log", "begun at", *HEADS[2:4], "whole part", *HEADS[5:]), iter(lines))


def written(page: Path | None, method: Method) -> tuple[str, str]:
    """Returns the verdict and the section of a method on a page that was written before.

    Raises:
        SystemExit: it has none.
    """
    text = page.read_text(encoding="utf-8") if page is not None and page.is_file() else ""
    name = re.escape(NAMES[method])
    verdict = re.search(rf"^\*\*{name} .*$", text, re.MULTILINE)
    told = re.search(rf"^## {name}$.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    if verdict is None or told is None:
        raise SystemExit(f"{page} says nothing of {method}: leave --only out")
    return verdict[0], told[0].rstrip() + "\n"


def page(rows: Rows, known: dict[str, Judge], told: dict[Method, tuple[str, str]]) -> str:
    """Returns the page, with what is `told` of methods that are not judged anew."""
    rows = [row for row in rows if row["method"] not in told]
    parts = [told.get(one) or (verdict_of(rows, one), section(rows, known, one)) for one in NAMES]
    verdicts_said, sections = "\n\n".join(part[0] for part in parts), "\n".join(part[1] for part in parts)
    return f"""# A learned order of the queue, judged

Written by `python -m benchmarks.queue.learned ../shared --kept learned.jsonl --page
docs/measured/learned-queue.md`. The logs lie beside the repository;
[Queues of jobs](../guides/queue.md#a-learned-order) says what is learned.

{verdicts_said}

An order that does not clear it is not the default: `-p learned` has to be said.

The judge: of {len(list(recipes()))} schedulers (the orders
{", ".join(f"`{order}`" for order in (*ORDERS, AGED))}
alone and inside EASY, `easy-sjbf` and `conservative`) the one with the lowest geometric mean of bounded
slowdowns on the first 60 % of a log is to be beaten on the later 40 %. It may be one without backfilling,
which commits to the head of its queue; the learned orders stay inside EASY. Each method is trained with
{SEEDS} seeds on the first 60 %, or as many as its section says, and plays the later 40 % without learning on.

Cells are changes against the best heuristic, negative is better; in brackets 95 % intervals (Student's t)
over {WINDOWS} paired windows of the later part, each the mean over seeds. `p95` (of slowdowns) and `longest
wait` are those of the whole later part, mean over seeds. The bar: at least 5 % lower with the interval off 0
on four logs, nowhere worse than 2 %, p95 and longest wait at most 5 % longer.

{sections}
## The heuristics that trainings began at
{imitated(rows, known)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--kept", type=Path, required=True, help="file of judgements, one a line")
    parser.add_argument("--page", type=Path, help="file to write [standard output]")
    parser.add_argument("--only", action="append", choices=tuple(STEPS), help="train and judge these [all]")
    parser.add_argument("--shown", action="store_true", help="train nothing more")
    said = parser.parse_args()
    known = judges(said.shared)
    only = said.only or list(STEPS)
    told = {method: written(said.page, method) for method in STEPS if method not in only}
    text = page(measure(known, said.kept, 0 if said.shown else SEEDS, only), known, told)
    if said.page is None:
        print(text)
    else:
        replace(said.page, text.encode())


if __name__ == "__main__":
    main()
