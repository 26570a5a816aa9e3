import pytest

from ingest.core.errors import UsageError
from twin.goodput.batch_choice import (
    BatchAnswer,
    BatchQuestion,
    answer,
    micro_batches,
    parse_batches,
    parse_gpus,
)


@pytest.fixture(scope="module")
def found() -> BatchAnswer:
    return answer(BatchQuestion("gpt2-1.5b", "V100-32", 4, (32, 64, 128), noise=200.0))


def test_the_chosen_way_fits_and_none_that_fits_has_more_goodput(found: BatchAnswer) -> None:
    fitting = [one for one in found.choices if one.fits]
    assert found.chosen in fitting
    assert found.chosen.goodput == max(one.goodput for one in fitting)
    assert len(fitting) < len(found.choices)
    assert [one.batch for one in found.best] == [32, 64, 128]


def test_a_batch_is_replicas_times_micro_batches_times_accumulation(found: BatchAnswer) -> None:
    assert all(one.batch == 4 * one.micro_batch * one.accumulation for one in found.choices)
    assert all(
        one.goodput == pytest.approx(one.samples_s * (200 + 32) / (200 + one.batch)) for one in found.choices
    )


def test_larger_micro_batches_take_more_memory(found: BatchAnswer) -> None:
    alike = [one for one in found.choices if (one.batch, one.recompute, one.zero) == (128, "none", 1)]
    peaks = [one.peak_bytes for one in sorted(alike, key=lambda one: one.micro_batch)]
    assert len(peaks) == 6 and peaks == sorted(set(peaks))


def test_recomputation_lets_fit_what_does_not_fit_without() -> None:
    one = answer(BatchQuestion("gpt2-1.5b", "A100-40", 1, (16,)))
    assert one.chosen.recompute != "none"
    assert not any(way.fits for way in one.choices if way.recompute == "none")


def test_a_way_without_the_margin_of_the_memory_model_does_not_fit() -> None:
    found = answer(BatchQuestion("gpt2-1.5b", "A100-40", 8, (64,)))
    close = [one for one in found.choices if 0.95 < one.peak_bytes / found.gpu_bytes < 1]
    assert close and not any(one.fits for one in close)


def test_what_is_typed_is_understood() -> None:
    assert parse_gpus("8 x A100-80") == (8, "A100-80")
    assert parse_batches("32..256") == (32, 64, 128, 256)
    assert parse_batches("32..100") == (32, 64)
    assert parse_batches("64, 8") == (8, 64)
    assert micro_batches(12) == (1, 2, 4, 12)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (lambda: parse_gpus("eight A100"), "write a number and a GPU"),
        (lambda: parse_batches("64..8"), "holds no batch"),
        (lambda: parse_batches("0"), "write 256"),
        (lambda: BatchQuestion("gpt2-1.5b", "V100-32", 4, (8, 16)), "add --noise-scale"),
        (lambda: BatchQuestion("gpt2-1.5b", "V100-32", 4, (8,), tp=3), "does not divide 4 GPUs"),
        (lambda: answer(BatchQuestion("gpt2-1.5b", "V100-32", 4, (6,))), "divides over 4 replicas"),
        (lambda: answer(BatchQuestion("llama2-70b", "T4", 4, (4,))), "fits in no way"),
        (lambda: answer(BatchQuestion("gpt9", "T4", 4, (4,))), "gpt9"),
        (lambda: answer(BatchQuestion("gpt2-1.5b", "T5", 4, (4,))), "T5"),
    ],
)
def test_a_question_without_an_answer_is_refused_in_words(question: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        question()  # type: ignore[operator]
