"""Parts of plans that more than one target cannot express, with the nearest plan for each."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from twin.core import placement
from twin.core.plan import Plan, Share

Check = Callable[[PlannedJob], Difference | None]


def first(job: PlannedJob, checks: Iterable[Check]) -> Difference | None:
    """Returns the first difference that one of the checks finds."""
    return next((found for check in checks if (found := check(job)) is not None), None)


def sorted_gpus(job: PlannedJob) -> Difference | None:
    """Launchers number processes node by node: the GPUs of a share have to follow that order."""
    shares = job.plan.shares
    ordered = tuple(replace(share, gpus=tuple(sorted(share.gpus))) for share in shares)
    if all(_by_node(job, share) for share in shares):
        return None
    return Difference(
        "the order of GPUs inside a domain", "its launcher numbers processes node by node",
        "GPUs in ascending order", replace(job.plan, shares=ordered),
    )  # fmt: skip


def _by_node(job: PlannedJob, share: Share) -> bool:
    nodes = [gpu // job.domains[share.domain].gpus_per_node for gpu in share.gpus]
    return nodes == sorted(nodes)


def one_tensor_width(job: PlannedJob) -> Difference | None:
    """Targets with one tensor width for all stages, of which a pipeline over unlike domains may have several.

    The nearest: all shares at the least or at the most width, stages changed so that the GPUs stay, whichever
    fits and takes less time.
    """
    widths = {share.tp for share in job.plan.shares}
    if len(widths) == 1:
        return None
    fitting = [
        plan for tp in sorted(widths) if (plan := _widened(job, tp)) and not job.estimator.problems(plan)
    ]
    words = ", ".join(f"{d.name} tp {s.tp}" for d, s in zip(job.used, job.plan.shares, strict=True))
    nearest = min(fitting, key=lambda plan: job.following(plan).iteration_s or 0.0, default=None)
    instead = (
        f"tp {nearest.shares[0].tp} in all domains" if nearest
        else "no width of all domains fits; plan again with another number of micro-batches or GPUs"
    )  # fmt: skip
    return Difference(f"tensor widths that differ ({words})", "it has one for all stages", instead, nearest)


def _widened(job: PlannedJob, tp: int) -> Plan | None:
    shares = []
    for share in job.plan.shares:
        pp, rest = divmod(share.tp * share.pp, tp)
        if rest or pp < 1 or pp * job.plan.chunks > share.layers:
            return None
        shares.append(replace(share, tp=tp, pp=pp, gpus=placement.packed(job.plan.dp, tp, pp)))
    try:
        return replace(job.plan, shares=tuple(shares))
    except ValueError:  # an interleaved schedule has a say in the number of stages
        return None


def schedule_among(allowed: Collection[str], why: str) -> Check:
    """Returns the check that the schedule is one of `allowed`; the nearest of all is 1F1B."""

    def check(job: PlannedJob) -> Difference | None:
        if job.plan.schedule in allowed:
            return None
        plan = replace(job.plan, schedule="1f1b", chunks=1, extra_warmup=0)
        return Difference(f"the schedule {job.plan.schedule}", why, "1f1b", plan)

    return check


def usual_warmup(job: PlannedJob) -> Difference | None:
    """Targets whose 1F1B begins with S - 1 - i forwards in stage i, and no more."""
    extra = job.plan.extra_warmup
    if not extra:
        return None
    return Difference(
        f"the warm-up that is {extra} micro-batches deeper in front of each wide-area link",
        "the depth of its 1F1B is fixed", "extra_warmup 0", replace(job.plan, extra_warmup=0),
    )  # fmt: skip


def no_replicas(job: PlannedJob) -> Difference | None:
    """Targets that run one pipeline, with all gradients averaged in every iteration."""
    if job.plan.sync is None:
        return None
    return Difference(
        f"replicas that meet after every {job.plan.sync.inner_steps} iterations",
        "it synchronises in every iteration", "export it to torchft, or plan a pipeline with `twin plan`",
        None,
    )  # fmt: skip


def no_adapters(job: PlannedJob) -> Difference | None:
    """Targets that train all weights."""
    if job.model.adapters is None:
        return None
    return Difference(
        "LoRA adapters", "its pre-training trains all weights", "plan the model without `lora`", None
    )


def dense(job: PlannedJob) -> Difference | None:
    """Targets whose model has one MLP a block and heads of its own."""
    what = "a mixture of experts" if job.model.experts else "latent attention" if job.model.latent else ""
    if not what:
        return None
    return Difference(what, "its model is a dense Transformer", "export it to megatron", None)


def zero_at_most(stage: int, why: str) -> Check:
    """Returns the check that ZeRO's stage is `stage` at most."""

    def check(job: PlannedJob) -> Difference | None:
        if job.plan.zero <= stage:
            return None
        return Difference(f"ZeRO {job.plan.zero}", why, f"ZeRO {stage}", replace(job.plan, zero=stage))

    return check


def no_context_parallelism(job: PlannedJob) -> Difference | None:
    """Targets in which a rank computes whole sequences."""
    plan = job.plan
    if plan.context_parallel == 1:
        return None
    return Difference(
        f"sequences split over {plan.context_parallel} ranks", "its ranks compute whole sequences",
        "export it to megatron", None,
    )  # fmt: skip


def no_tensor_ranks(job: PlannedJob) -> Difference | None:
    """Targets whose layers are whole: tensor width 1, with more stages in its place where they fit."""
    if all(share.tp == 1 for share in job.plan.shares):
        return None
    nearest = _widened(job, 1)
    if nearest is None or job.estimator.problems(nearest):
        nearest = None
    return Difference(
        "layers split over tensor ranks", "its layers are whole",
        "tp 1, with more stages" if nearest else "whole layers do not fit; export it to megatron",
        nearest,
    )  # fmt: skip
