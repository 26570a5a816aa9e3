"""Pictures of batches: equal bytes, what is drawn, and the Python interface that answers the same."""

from pathlib import Path

import pytest

import twin
from ingest.core.errors import UsageError
from replay.planning.batch_picture import picture
from twin.goodput.application_profile import ProfileAnswer, ProfiledBatch


@pytest.fixture(scope="module")
def answer() -> twin.BatchAnswer:
    return twin.batch("gpt2-1.5b", "8 x V100-32", "32..128", noise_scale=300)


def test_a_picture_shows_memory_and_goodput_and_is_the_same_each_time(answer: twin.BatchAnswer) -> None:
    drawn = picture(answer, Path("batch.svg"))
    assert drawn == picture(answer, Path("batch.SVG"))
    text = drawn.decode()
    for words in ("micro-batch, samples", "batch, samples", "recompute full", "with a margin of 8%", "taken"):
        assert f"<!-- {words}" in text, words
    assert picture(answer, Path("batch.png")).startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"must end in \.svg or \.png"):
        picture(answer, Path("batch.pdf"))


def test_one_batch_is_drawn_over_its_micro_batch() -> None:
    one = twin.batch("gpt2-1.5b", "8 x V100-32", 64)
    assert "<!-- micro-batch of batch 64, samples" in picture(one, Path("one.svg")).decode()


def test_a_profile_has_goodput_alone() -> None:
    batches = tuple(ProfiledBatch(n, n / 2, 1, 0.1, 10 * n, 50.0, 0.5, 5 * n, 1.2) for n in (20, 80))
    found = ProfileAnswer("toy", "box", "2", 0.5, 20, batches, batches[1], ())
    text = picture(found, Path("toy.svg")).decode()
    assert "<!-- toy on box, GPUs a node 2: batch 80" in text and "predicted peak" not in text


def test_python_answers_as_the_command_does(answer: twin.BatchAnswer) -> None:
    listed = twin.batch("gpt2-1.5b", "8 x V100-32", [128, 32, 64], noise_scale=300)
    assert listed == answer and answer.question.batches == (32, 64, 128)
    assert answer.chosen in answer.best and answer.chosen.fits
    with pytest.raises(UsageError, match="needs the gradient's noise scale"):
        twin.batch("gpt2-1.5b", "8 x V100-32", [32, 64])
