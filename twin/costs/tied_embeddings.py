"""Tied embeddings: the first and the last stage hold a copy of one matrix and add up its gradients.

Megatron-LM all-reduces them between the two stages in every iteration, each tensor and data rank with its
counterpart, after the reduction over the replicas and whether or not the optimiser is sharded
(`_allreduce_word_embedding_grads` in megatron/core/distributed/finalize_model_grads.py). Two ranks make a
ring of two steps: each sends half of the matrix to the other, adds, and sends the sum of its half back.

Both stages wait for each other and then update, so that the exchange adds to what follows the last backward
of the later one.
"""

from twin.core import schedules
from twin.core.job import JobSpec
from twin.core.plan import Plan

STEPS = 2


def spread(plan: Plan) -> int:
    """Stages from the embedding to the head: all of them, or the first one alone, which has both where the
    way of a micro-batch leads back up the stages."""
    return 1 if schedules.turns(plan.schedule) else plan.stages


def step_bytes(job: JobSpec, stages: int) -> int:
    """Bytes that the first and the last stage send each other in one of the `STEPS` steps, for one pipeline
    of `stages`; 0 for a single stage, or where the model ties nothing or trains adapters alone."""
    if not job.model.tied or job.model.adapters is not None or stages == 1:
        return 0
    return round(job.model.vocab * job.model.hidden * job.gradient_bytes / STEPS)


def iteration_bytes(job: JobSpec, stages: int) -> int:
    """Bytes that each of them sends in one iteration, for one pipeline."""
    return STEPS * step_bytes(job, stages)
