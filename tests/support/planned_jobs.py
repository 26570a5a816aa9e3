"""Plans of many kinds with their jobs, for what exports them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from replay.export.planned_job import PlannedJob
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Plan, Share, Sync
from twin.core.transformer import Transformer
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import cost_models, load

LINKS = LinkState(np.where(np.eye(3, dtype=bool), np.inf, 5e9), np.where(np.eye(3, dtype=bool), 0.0, 0.04))
UNEQUAL = LinkState(np.array([[np.inf, 4e9, 2e9], [5e9, np.inf, 3e9], [2e9, 1e9, np.inf]]), LINKS.latency_s)


def tri(plan: Plan, links: LinkState | None = LINKS, **changes: object) -> PlannedJob:
    """The plan for the job of tri-7b (34 layers, three domains of four A100-80), which `changes` change."""
    scenario = load("tri-7b")
    estimator = cost_models(scenario, Path("no-store"))
    if changes:
        job: JobSpec = replace(estimator.job, **changes)  # type: ignore[arg-type]
        estimator = Estimator(estimator.cluster, job)
    return PlannedJob(scenario.name, "a test", estimator, plan, links)


def pipeline(*shares: tuple[int, int, int, int], dp: int, micro_batches: int, **changes: object) -> Plan:
    """Plan of shares (domain, layers, tp, pp) on packed GPUs."""
    placed = tuple(
        Share(domain, layers, tp, pp, tuple(range(dp * tp * pp))) for domain, layers, tp, pp in shares
    )
    return Plan(placed, dp, 1, micro_batches, zero=1, **changes)  # type: ignore[arg-type]


def uneven(**changes: object) -> Plan:
    """Stages of 10, 9 and 15 layers in two domains, two GPUs each."""
    return pipeline((0, 19, 1, 2), (2, 15, 1, 1), dp=2, micro_batches=16, **changes)


KINDS: dict[str, Callable[[], PlannedJob]] = {
    "uneven stages": lambda: tri(uneven()),
    "unequal links": lambda: tri(uneven(), UNEQUAL),
    "links unknown": lambda: tri(uneven(), None),
    "one domain": lambda: tri(pipeline((1, 34, 2, 1), dp=2, micro_batches=16)),
    "three domains": lambda: tri(
        pipeline((2, 8, 2, 1), (0, 12, 2, 1), (1, 14, 2, 1), dp=2, micro_batches=16)
    ),
    "deeper warm-up": lambda: tri(uneven(extra_warmup=2)),
    "gpipe": lambda: tri(uneven(schedule="gpipe")),
    "zb-h1": lambda: tri(uneven(schedule="zb-h1")),
    "crosspipe": lambda: tri(uneven(schedule="crosspipe")),
    "zb-v": lambda: tri(uneven(schedule="zb-v", chunks=2), schedule="zb-v", chunks=2),
    "interleaved": lambda: tri(
        pipeline(
            (0, 17, 1, 2), (1, 17, 1, 2), dp=2, micro_batches=16, schedule="interleaved", chunks=2,
        ),
        schedule="interleaved", chunks=2,
    ),
    "other widths": lambda: tri(pipeline((0, 17, 2, 1), (1, 17, 1, 2), dp=2, micro_batches=16)),
    "relayed": lambda: tri(uneven(routes=((0, 1, 2), (2, 1, 0)))),
    "shuffled GPUs": lambda: tri(
        replace(uneven(), shares=(Share(0, 19, 1, 2, (3, 1, 0, 2)), Share(2, 15, 1, 1, (1, 0))))
    ),
    "ZeRO 3": lambda: tri(replace(uneven(), zero=3), zero=3),
    "selective": lambda: tri(uneven(recompute="selective"), recompute="selective"),
    "replicas": lambda: tri(
        Plan(
            tuple(Share(k, 34, 2, 1, (0, 1, 2, 3)) for k in (0, 1)), 2, 1, 8, zero=1, sync=Sync(50, 4.0)
        )
    ),
    "synchronous replicas": lambda: tri(
        Plan(tuple(Share(k, 34, 2, 1, (0, 1, 2, 3)) for k in (0, 1)), 2, 1, 8, zero=1, sync=Sync(1, 4.0))
    ),
    "experts": lambda: tri(
        pipeline((0, 20, 2, 1), (1, 14, 2, 1), dp=2, micro_batches=16, ep=2),
        model=preset("mixtral-8x7b"), ep=(2,),
    ),
    "latent attention": lambda: tri(
        pipeline((0, 17, 1, 2), (1, 12, 1, 2), dp=2, micro_batches=16), model=preset("deepseek-v2-lite")
    ),
}  # fmt: skip


def small(plan: Plan, **shape: object) -> PlannedJob:
    """The plan for a model of 6 blocks (8 layers) and 8 sequences in the domains of tri-7b."""
    kind = {"gated": True, **shape}
    model = Transformer("small", 6, 64, 4, 4, 128, seq=32, vocab=96, **kind)  # type: ignore[arg-type]
    return tri(plan, model=model, global_batch=8)
