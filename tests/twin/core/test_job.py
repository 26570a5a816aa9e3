import pytest

from ingest.core.errors import UsageError
from twin.core.job import JobSpec
from twin.core.transformer import preset

MODEL = preset("llama2-7b")


def test_batches() -> None:
    job = JobSpec(MODEL, 48, (1, 2))
    assert job.tokens_per_iteration == 48 * 4096
    assert job.micro_batches(4, 2) == 6
    assert job.micro_batches(5, 2) is None
    assert job.micro_batches(64, 1) is None
    assert job.message_bytes(2) == 2 * 4096 * 4096 * 2


def test_ranks_that_split_sequences_share_a_pipeline() -> None:
    job = JobSpec(MODEL, 48, (1, 2), context_parallel=4)
    assert job.micro_batches(8, 2) == 12  # two pipelines of four ranks
    assert job.micro_batches(6, 2) is None
    assert job.micro_batches(8, 2, copies=2) == 6
    assert job.message_bytes(2) == 2 * 1024 * 4096 * 2
    with pytest.raises(UsageError, match="4096 tokens are no multiple of 6"):
        JobSpec(MODEL, 48, context_parallel=3)


@pytest.mark.parametrize("wrong", [{"global_batch": 0}, {"micro_batches_allowed": ()}, {"zero": 4}])
def test_impossible_jobs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        JobSpec(**({"model": MODEL, "global_batch": 8} | wrong))  # type: ignore[arg-type]
