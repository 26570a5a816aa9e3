"""Boundaries of a pipeline between domains, and the bytes sent over them."""

from twin.core import schedules
from twin.core.domain import Pair
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.costs import tied_embeddings


def stage_domains(plan: Plan) -> list[int]:
    """Domain of every stage (S,)."""
    return [share.domain for share in plan.shares for _ in range(share.pp)]


def boundaries(plan: Plan) -> list[Pair | None]:
    """Domains that each boundary between stages joins, interleaved also the last stage and the first; None
    inside a domain."""
    domains = stage_domains(plan)
    after = [*domains[1:], *(domains[:1] if schedules.returns(plan.schedule, plan.chunks) else ())]
    return [(a, b) if a != b else None for a, b in zip(domains, after, strict=False)]


def crossings(job: JobSpec, plan: Plan) -> list[Pair]:
    """Directed pairs of domains between which a pipeline sends, each once: of its boundaries, both ways, and
    of the ends of a tied embedding."""
    joined = [pair for pair in boundaries(plan) if pair is not None]
    if joined and tied_embeddings.step_bytes(job, tied_embeddings.spread(plan)):
        joined.append((plan.order[-1], plan.order[0]))
    return list(dict.fromkeys(pair for a, b in joined for pair in ((a, b), (b, a))))


def iteration_bytes(job: JobSpec, plan: Plan) -> float:
    """Bytes of the busiest crossing in one iteration.

    Every boundary is crossed once a chunk, interleaved the way back from the last stage to the first once
    less; with two shares the latter shares a crossing with the former. The exchange of a tied embedding goes
    between the ends, over a crossing of messages where there are two shares or the way back is taken.
    """
    returns = schedules.returns(plan.schedule, plan.chunks)
    back = plan.chunks - 1 if returns and plan.stages > 1 and len(plan.shares) == 2 else 0
    messages = job.message_bytes(plan.micro_batch) * plan.dp * plan.micro_batches * (plan.chunks + back)
    tied_bytes = tied_embeddings.iteration_bytes(job, tied_embeddings.spread(plan))
    exchanged = tied_bytes * plan.dp if len(plan.shares) > 1 else 0
    together = len(plan.shares) == 2 or returns
    return float(messages + exchanged if together else max(messages, exchanged))
