import pytest

from ingest.core.errors import UsageError
from twin.core.job import JobSpec
from twin.core.model_presets import preset

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


def test_ranks_that_share_experts_divide_those_of_a_stage() -> None:
    job = JobSpec(preset("mixtral-8x7b"), 48, (1, 2), ep=(2, 4))
    assert [job.ep_of(dp) for dp in (1, 2, 4, 6, 8)] == [0, 2, 4, 2, 4]
    assert job.micro_batches(3, 1) is None and job.micro_batches(6, 2) == 4
    assert job.size_fault(3, 1) == "ep 2 or 4 does not divide 3 ranks"
    assert job.size_fault(8, 4) == "global batch 48 is not a multiple of dp 8 x micro-batch 4"


@pytest.mark.parametrize(
    ("name", "ep", "words"),
    [
        ("mixtral-8x7b", (3,), "ep 3 does not divide 8 experts"),
        ("mixtral-8x7b", (0,), "ep 0 does not divide 8 experts"),
        ("mixtral-8x7b", (), "name at least one degree"),
        ("llama2-7b", (1, 2), "ep 2 needs a model with experts"),
    ],
)
def test_degrees_that_cannot_be(name: str, ep: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        JobSpec(preset(name), 48, ep=ep)


@pytest.mark.parametrize("wrong", [{"global_batch": 0}, {"micro_batches_allowed": ()}, {"zero": 4}])
def test_impossible_jobs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        JobSpec(**({"model": MODEL, "global_batch": 8} | wrong))  # type: ignore[arg-type]
