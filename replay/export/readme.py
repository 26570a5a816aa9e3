"""The README of an export: the plan in words, what was changed, what no file says, and how to start."""

from collections.abc import Iterator, Sequence

from replay.export import rank_map
from replay.export.contract import ExportTarget, Fitted, cost
from replay.export.planned_job import PlannedJob
from replay.metrics.formatting import at_least, percent, unpriced_text
from twin.core.layer_split import stage_layers
from twin.core.plan_text import plan_text
from twin.estimation.bottleneck import bottleneck
from twin.estimation.training_cost import of_iteration

TRANSFERS = {
    "blocking": "a stage waits until a message has left it",
    "overlapped": "messages travel beside the compute",
    "rendezvous": "a message leaves when its receiver waits for it",
}


def readme(target: ExportTarget, fitted: Fitted, asked: PlannedJob, files: Sequence[str]) -> str:
    """Returns the README of an export with these files, as Markdown."""
    job = fitted.job
    sections = [
        f"# {job.name} for {target.name}\n\n{target.about}. Written by `twin export` from {job.origin}.",
        "\n".join(_plan(job)),
        "## Start\n\n" + target.start(job),
        "## Files\n\n" + "\n".join(f"* `{name}`" for name in sorted(files)),
    ]
    if fitted.changed:
        sections.insert(2, "\n".join(_changed(fitted, asked)))
    if names := list(_names(job)):
        sections.insert(2, "\n".join(names))
    if notes := list(messages(job)):
        sections.append("## Not in these files\n\n" + "\n".join(f"* {note}" for note in notes))
    return "\n\n".join(sections) + "\n"


def _plan(job: PlannedJob) -> Iterator[str]:
    plan, last = job.plan, len(job.plan.shares) - 1
    names = [domain.name for domain in job.domains]
    yield f"Model {job.model.name}, global batch {job.job.global_batch} sequences: {plan_text(plan, names)}"
    yield ""
    yield "| domain | GPUs | layers | tp | stages of layers |"
    yield "| --- | --- | --- | --- | --- |"
    for n, (share, domain) in enumerate(zip(plan.shares, job.used, strict=True)):
        whole = plan.sync is not None
        stages = stage_layers(share.pp * plan.chunks, share.layers, n == 0 or whole, n == last or whole)
        words = " + ".join(map(str, stages))
        gpus = f"{len(share.gpus)} {domain.gpu.name}"
        yield f"| {domain.name} | {gpus} | {share.layers} | {share.tp} | {words} |"
    yield ""
    expected = job.iteration_s
    if expected is not None and job.links is not None:
        cost = of_iteration(job.estimator, plan, job.estimator.iteration(plan, job.links))
        each = cost.per_billion_tokens()
        total, rent, egress = (
            at_least(each[part], partial=bool(cost.unpriced) and part != "egress")
            for part in ("total", "rent", "egress")
        )
        yield (
            f"Expected: {expected:.2f} s an iteration, {cost.tokens_per_s:,.0f} tokens/s, MFU "
            f"{percent(cost.mfu)}, {total} USD per 1e9 tokens (GPU rent {rent}, egress {egress}), under the "
            "links of the plan."
        )
        if cost.unpriced:
            yield ""
            yield f"Note: {unpriced_text(cost.unpriced)}."
        yield ""
        yield f"Limited by (time saved without it): {bottleneck(job.estimator, plan, job.links).text}."


def _changed(fitted: Fitted, asked: PlannedJob) -> Iterator[str]:
    yield f"## What was changed{cost(asked, fitted.job)}"
    yield ""
    for one in fitted.changed:
        yield f"* {one.part}: {one.why}; here {one.instead}"


def _names(job: PlannedJob) -> Iterator[str]:
    found = rank_map.renamed(job)
    if found:
        yield "## Sites under other names"
        yield ""
        yield "Hosts, files and labels cannot have these names. Here they are, each a name of its own:"
        yield ""
        yield from (f"* {own} is `{name}`" for own, name in found.items())


def messages(job: PlannedJob) -> Iterator[str]:
    """Yields what frameworks leave to the network: the ways of messages, and the sending that was assumed."""
    plan = job.plan
    for route in plan.routes:
        way = " to ".join(job.domains[k].name for k in route)
        yield f"the relay {way}: routes of the network below the framework carry it out"
    yield f"the times assume {plan.p2p} sends: {TRANSFERS[plan.p2p]}"
