"""Layer times from a small data set of profiles: measured, interpolated, outside, and of something else."""

from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.pipeline.ingest import ingest
from tests.support.worlds import toy_scenario, toy_wan
from twin.calibration import lake_profiles
from twin.calibration.lake_profiles import LakeProfiles, tables
from twin.cases.table_answers import constants_of, estimate
from twin.core.domain import Domain
from twin.core.gpu_models import preset
from twin.core.transformer import classic
from twin.costs.layer_compute import layer_times
from twin.scenario.prepare import assemble, with_profiles

A100 = Domain("d", preset("A100-40"), 8, 4, 2.4e12, 2e11, 3e-6, 8e-6, 0.0)
TINY = classic("tiny", blocks=2, hidden=128, heads=2, seq=64, vocab=512, dtype="bf16")
HEAD = "model,gpu_model,tp,micro_batch,layer,forward_s,backward_s,update_s\n"


def _rows(gpu: str = "A100-40") -> str:
    """Embedding 0.1 s, blocks 1 and 2 s, norm 0.01 s, head 0.5 s for one sequence; in proportion for 3."""
    layers = enumerate((0.1, 1.0, 2.0, 0.01, 0.5))
    return "".join(
        f"tiny,{gpu},{tp},{size},{layer},{t * size / tp},{2 * t * size / tp},{0.25}\n"
        for layer, t in layers for tp in (1, 2, 8) for size in (1, 3)
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    llama = "".join(f"L7,A100-80,1,{size},{n},{size},{2 * size},\n" for size in (1, 2) for n in range(34))
    for name, rows in (("mine", _rows()), ("llama", llama)):
        (folder / name).mkdir()
        (folder / name / "layer_profiles.csv").write_text(HEAD + rows)
    ingest([folder / "mine", folder / "llama"], folder / "store")
    return folder / "store"


@pytest.fixture(scope="module")
def found(store: Path) -> LakeProfiles:
    return lake_profiles.load(store, "mine")


def test_measured_layers_with_the_norm_in_the_head(found: LakeProfiles) -> None:
    times = found(TINY, A100, 1, 3, "none")
    assert times.forward_s == pytest.approx([0.3, 3.0, 6.0, 1.53])
    assert times.backward_s == pytest.approx([0.6, 6.0, 12.0, 3.06])


def test_between_two_micro_batches_and_with_recompute(found: LakeProfiles) -> None:
    times = found(TINY, A100, 2, 2, "full")
    assert times.forward_s == pytest.approx([0.1, 1.0, 2.0, 0.51])
    assert times.backward_s == pytest.approx([0.2, 2.0 + 1.0, 4.0 + 2.0, 1.02])
    assert found.look(TINY, A100, 2, 2).where.endswith("tp 2, micro-batch 2 between 1 and 3")


@pytest.mark.parametrize(
    ("tp", "micro_batch", "why"),
    [(4, 1, "not measured at tp 4, only at 1, 2, 8"), (1, 4, "at micro-batches 1 to 3, not at 4"),
     (8, 1, "tp 8 inside a node, not over nodes")],
)  # fmt: skip
def test_outside_the_models_answer(found: LakeProfiles, tp: int, micro_batch: int, why: str) -> None:
    looked = found.look(TINY, A100, tp, micro_batch)
    assert looked.times is None and looked.where.endswith(why)
    times = found(TINY, A100, tp, micro_batch, "none")
    models = layer_times(TINY, A100, tp, micro_batch, "none")
    assert times.forward_s.tolist() == models.forward_s.tolist()


def test_a_micro_batch_without_all_layers_is_left_out() -> None:
    row = ("m", "A100-40", 1, 1, "0", 1.0, 2.0, None, None)
    more = [(*row[:3], 2, str(layer), *row[5:]) for layer in range(3)]
    assert tables([row, *more])[0]["m", "A100-40"][1].sizes.tolist() == [2.0]


CELLS = "gpu_model,layers,hidden,heads,seq,vocab,pp,micro_batch,micro_batches,recompute,profile_model\n"


def test_an_answer_by_hand_and_its_basis(store: Path, tmp_path: Path) -> None:
    """One stage: (0.3 + 3 + 6 + 1.53) s forward, twice that backward, 4 micro-batches, 5 layers updated."""
    cases = tmp_path / "cases.csv"
    row = "2,128,2,64,512,1,3,4,none"
    cases.write_text(f"{CELLS}A100-40,{row},tiny\nH100,{row},tiny\nA100-40,{row},\nA100-40,3{row[1:]},tiny\n"
                     f"A100-40,4{row[1:]},tiny\n")  # fmt: skip
    answers = estimate(cases, constants_of(store, "mine"))
    ((_, first), (number, _)) = answers.rows
    assert first.iter_s == pytest.approx(4 * 3 * 10.83 + 5 * 0.25)
    assert first.basis == "profiles mine: tiny on A100-40, tp 1, micro-batch 3 measured"
    assert number == 4  # 3 blocks: the last layer alone is the head
    assert [one.message for one in answers.failures] == [
        "profiles of mine measured tiny on A100-40, not on H100",
        "profiles of mine are those of tiny: name one in profile_model",
        "profiles of mine have 5 layers of tiny, which is not a model of 4 blocks",
    ]


def test_a_data_set_without_profiles(store: Path) -> None:
    with pytest.raises(NotFoundError, match="no layer profile of 'other'"):
        lake_profiles.load(store, "other")


def test_a_scenario_takes_its_times_from_profiles_and_records_them(store: Path) -> None:
    named = toy_scenario(profiles={"dataset": "llama", "model": "L7"})
    setup = with_profiles(assemble(named, toy_wan(), window="all"), store)
    estimator = setup.estimator()
    times = estimator.compute(setup.job.model, setup.cluster.domains[0], 1, 2, "none")
    assert times.forward_s.tolist() == [2.0] * 34
    assert set(setup.header()["traces"]) == {"source", "window", "profiles"}
    assert "profiles" not in toy_scenario().model_dump()
    other = assemble(toy_scenario(profiles={"dataset": "mine"}), toy_wan(), window="all")
    with pytest.raises(UsageError, match=r"domain d0: profiles of mine are those of tiny, none of which is"):
        with_profiles(other, store)
