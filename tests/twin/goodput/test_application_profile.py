from pathlib import Path

import pytest

from ingest.core.errors import InputError, NotFoundError, UsageError
from twin.goodput.application_profile import ApplicationProfile, read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A made-up application: two GPUs in a node, batches of 20 and 80."""
    home = tmp_path / "toy"
    home.mkdir()
    (home / "placements-box.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,10,0.5,0\n2,20,0.3,0.1\n2,10,0.2,0.1\n"
    )
    (home / "validation-20.csv").write_text("progress,grad_sqr,grad_var\n50,2,8\n100,1,8\n")
    (home / "validation-80.csv").write_text("progress,grad_sqr,grad_var\n60,1,6\n120,1,10\n")
    return tmp_path


def test_goodput_is_made_of_step_times_and_noise(folder: Path) -> None:
    found = read(folder, "toy", "box", "2").answer(progress=1.0)

    small, large = found.batches
    # variances are those at the smallest batch, 20: noise 8 x 20 and 10 x 20
    assert (small.noise, large.noise) == (160.0, 200.0)
    assert (small.step_s, small.samples_s, small.efficiency) == (0.2, pytest.approx(100.0), 1.0)
    # 40 a GPU are two passes of 20, of which the last alone synchronises
    assert (large.accumulation, large.local_batch, large.step_s) == (2, 20.0, pytest.approx(0.5))
    assert large.efficiency == (200 + 20) / (200 + 80)
    assert found.chosen is large and found.at_edge and found.left_out == ()
    assert large.goodput == pytest.approx(80 / 0.5 * 220 / 280)


def test_between_measured_sizes_is_interpolated_and_outside_refused(folder: Path) -> None:
    profile = read(folder, "toy", "box", "2")

    assert profile.step_seconds(15) == pytest.approx(0.25)
    assert profile.noise_at(40, 1.0) == pytest.approx(180.0)
    with pytest.raises(UsageError, match="outside the profile, which has 10 to 20"):
        profile.step_seconds(21)
    with pytest.raises(UsageError, match="has 20 to 80"):
        profile.noise_at(100, 0.5)
    with pytest.raises(UsageError, match=r"measured from 0\.500 of the training on"):
        profile.noise_at(40, 0.4)


def test_what_is_not_there_is_named_with_what_is(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="GPUs box"):
        read(folder, "toy", "dgx", "2")
    with pytest.raises(NotFoundError, match="applications toy"):
        read(folder, "bert", "box", "2")
    with pytest.raises(UsageError, match="up to 1 nodes and 2 GPUs: take fewer"):
        read(folder, "toy", "box", "3")
    with pytest.raises(UsageError, match="one digit a node"):
        read(folder, "toy", "box", "0")
    (folder / "toy/placements-box.csv").write_text("placement,local_bsz,step_time,sync_time\n2,ten,0.5,0\n")
    with pytest.raises(
        InputError, match=r"placements-box\.csv:2: local_bsz, step_time, sync_time are no numbers"
    ):
        read(folder, "toy", "box", "2")


@pytest.mark.shared
def test_published_profiles_have_a_batch_of_most_goodput_inside(shared: Path) -> None:
    profiles = shared / "jobs" / "sia-pollux" / "profiles"

    def taken(application: str, placement: str) -> tuple[int, ApplicationProfile]:
        profile = read(profiles, application, "dgx-ext", placement)
        return profile.answer().chosen.batch, profile

    assert taken("imagenet", "1")[0] == 800
    assert taken("imagenet", "8")[0] == 3200
    assert taken("bert", "8")[0] == 384
    efficient = taken("imagenet", "8")[1].answer().batches
    assert [one.efficiency for one in efficient] == sorted(
        (one.efficiency for one in efficient), reverse=True
    )


@pytest.mark.shared
def test_a_placement_that_was_not_measured_is_predicted_with_its_error(shared: Path) -> None:
    profiles = shared / "jobs" / "sia-pollux" / "profiles"

    assert read(profiles, "bert", "aws", "44").answer().step_error is None
    found = read(profiles, "bert", "aws", "444").answer()
    again = read(profiles, "bert", "aws", "11244").answer()
    assert found.step_error is None and again.step_error is not None
    assert 0.03 < again.step_error < 0.2
    # five nodes with 12 GPUs are no faster than three with as many
    assert again.chosen.samples_s == pytest.approx(found.chosen.samples_s, rel=0.25)
    assert read(profiles, "bert", "aws", "3223").answer().step_error is None
    with pytest.raises(UsageError, match="up to 1 nodes and 4 GPUs"):
        read(profiles, "imagenet", "quad", "22")
