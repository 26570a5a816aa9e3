"""Training on a toy: resumed equals uninterrupted, wrong resumes are refused, checkpoints cannot be
mistaken.
"""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ingest.core.errors import DamageError, InputError, NotFoundError, UsageError
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import (
    GnnConfig,
    HiPpoConfig,
    ImitationConfig,
    PpoConfig,
    RolloutConfig,
    changed,
    shipped,
)
from policy.hippo.training.state import resume_key
from policy.hippo.training.train import TrainingBackend, train
from tests.support.worlds import toy_setup
from twin.scenario.prepare import PreparedScenario

CONFIG = HiPpoConfig(
    gnn=GnnConfig(hidden_dim=16),
    ppo=PpoConfig(num_steps=48, update_epochs=2, minibatch_size=16),
    rollout=RolloutConfig(environments=4, episode_steps=6),
    imitation=ImitationConfig(lessons=4, searched=6, steps=60, batch=8),
    iterations=3,
    evaluate_every=1,
)


@pytest.fixture(scope="module")
def setup() -> PreparedScenario:
    return toy_setup(2, seconds=2400.0, steps={(0, 1): [(600.0, 4e8)], (1, 0): [(900.0, 5e8)]})


class Countdown:
    """Asks for a stop at the n-th question."""

    def __init__(self, n: int):
        self.left = n

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture(scope="module")
def whole(setup: PreparedScenario, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    result = train(setup, config=CONFIG, out=tmp_path_factory.mktemp("whole"))
    assert result.finished and [u.stage for u in result.curve].count("ppo") == 3
    return result.checkpoint_path, result.digest


@pytest.mark.parametrize("questions", [1, 3])
def test_resumed_training_is_the_uninterrupted_one(
    questions: int, setup: PreparedScenario, whole: tuple[Path, str], tmp_path: Path
) -> None:
    first = train(setup, config=CONFIG, out=tmp_path, stop=Countdown(questions))
    assert not first.finished
    second = train(setup, config=CONFIG, out=tmp_path, resume=True)
    assert second.finished and second.digest == whole[1]
    assert len(list((tmp_path / ".training").glob("*.pt"))) == 1


@pytest.mark.parametrize(
    "without",
    [
        {"gnn": {"type": "GATv2", "hidden_dim": 16}},
        {"gnn": {"type": "none", "hidden_dim": 16}},
        {"parts": {"forecast": False}},
        {"parts": {"hierarchy": False}},
        {"parts": {"masks": False}},
        {"parts": {"hold": False}},
        {"rollout": {"environments": 4, "episode_steps": 6, "weights": (0.6, 0.2, 0.2)}},
        {"imitation": {"lessons": 0, "searched": 0, "steps": 0}},
    ],
    ids=lambda part: "-".join(f"{name}-{next(iter(value.values()))}" for name, value in part.items()),
)
def test_every_encoder_trains_and_every_part_can_be_left_out(
    without: dict[str, object], setup: PreparedScenario, whole: tuple[Path, str], tmp_path: Path
) -> None:
    config = HiPpoConfig.model_validate(CONFIG.model_dump() | {"iterations": 1} | without)
    done = train(setup, config=config, out=tmp_path)
    (last,) = [update for update in done.curve if update.stage == "ppo"]
    assert np.isfinite(list(last.metrics.values())).all()
    learned, untrained = checkpoint.load(done.checkpoint_path), checkpoint.build(config)[0].state_dict()
    assert learned.config == config
    pointer = json.loads((tmp_path / "training.json").read_text())
    now = checkpoint.load(tmp_path / ".training" / pointer["state"]).upper
    assert any(not torch.equal(now[name], tensor) for name, tensor in untrained.items())
    legal = 1.0 if config.parts.masks else pytest.approx(0.5, abs=0.5)
    assert last.metrics["meant"] == legal
    if not config.parts.hold:
        assert last.metrics["moves"] > 0.5  # a plan is named at every decision


def test_resume_needs_the_same_configuration(setup: PreparedScenario, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no training to resume"):
        train(setup, config=CONFIG, out=tmp_path, resume=True)
    train(setup, config=CONFIG, out=tmp_path, stop=Countdown(0))
    other = CONFIG.model_copy(update={"iterations": 4})
    with pytest.raises(UsageError, match="another configuration"):
        train(setup, config=other, out=tmp_path, resume=True)


def test_a_resumed_training_needs_the_same_demonstrations_and_learners(
    setup: PreparedScenario, tmp_path: Path
) -> None:
    plain = resume_key([setup], None, (), 1)
    assert plain == [[setup.scenario.name, setup.trace_digest, setup.window]]  # as states before said it
    assert resume_key([setup], None, ["a"], 1) != resume_key([setup], None, ["b"], 1) != plain
    assert resume_key([setup], None, (), 2) != plain != resume_key([setup], setup, (), 1)
    train(setup, config=CONFIG, out=tmp_path, stop=Countdown(0), backend=TrainingBackend(logged_runs=["a"]))
    for other in ([], ["b"], ["a", "b"]):
        with pytest.raises(UsageError, match="lessons or number of learners"):
            train(setup, config=CONFIG, out=tmp_path, resume=True, backend=TrainingBackend(logged_runs=other))


def test_checkpoint_roundtrip_and_provenance(whole: tuple[Path, str]) -> None:
    path, digest = whole
    assert path.parent.name == digest and checkpoint.locate(path.parent) == path
    loaded = checkpoint.load(path)
    assert loaded.config == CONFIG and loaded.training is None
    assert loaded.provenance["data"][0][0] == "toy-2" and loaded.provenance["iterations"] == 3
    upper, _ = loaded.agents()
    assert all(torch.equal(t, loaded.upper[name]) for name, t in upper.state_dict().items())
    assert checkpoint.to_bytes(loaded) == path.read_bytes()


def test_the_code_version_covers_every_module_under_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("networks", "tables"):
        (tmp_path / room).mkdir()
    monkeypatch.setattr(checkpoint, "__file__", str(tmp_path / "networks" / "checkpoint.py"))
    module = tmp_path / "networks" / "masks.py"
    module.write_text("WIDTH = 1\n")
    versions = [checkpoint.code_version()]
    module = module.rename(tmp_path / "tables" / "masks.py")
    versions.append(checkpoint.code_version())
    module.write_text("WIDTH = 2\n")
    assert len({*versions, checkpoint.code_version()}) == 3


def test_a_damaged_checkpoint_is_never_loaded(whole: tuple[Path, str], tmp_path: Path) -> None:
    data = bytearray(whole[0].read_bytes())
    data[len(data) // 2] ^= 1
    bad = tmp_path / whole[0].name
    bad.write_bytes(bytes(data))
    with pytest.raises(DamageError, match="damaged"):
        checkpoint.load(bad)
    renamed = tmp_path / "best.pt"
    renamed.write_bytes(bytes(data))
    with pytest.raises(InputError, match="rename"):
        checkpoint.load(renamed)
    with pytest.raises(NotFoundError, match="twin train"):
        checkpoint.load(tmp_path / "hippo-00000000.pt")


def named(folder: Path, data: bytes) -> Path:
    """A file of that content under the name that belongs to it."""
    path = folder / f"hippo-{hashlib.sha256(data).hexdigest()}.pt"
    path.write_bytes(data)
    return path


def saved(payload: object) -> bytes:
    stream = io.BytesIO()
    torch.save(payload, stream)
    return stream.getvalue()


def test_garbage_under_a_right_name_is_an_error_in_words(whole: tuple[Path, str], tmp_path: Path) -> None:
    rng, good = np.random.default_rng(0), whole[0].read_bytes()
    garbage = [b"", b"0", b"\x80", b"\x80\x02a.", b"\x80\x02.", *(rng.bytes(n) for n in range(1, 60))]
    garbage += [good[:n] for n in (4, 100, len(good) // 2, len(good) - 1)]
    for _ in range(60):  # a pickle of any operations at all
        garbage.append(
            b"\x80\x02" + bytes(rng.choice(list(b"(]}eu0bsti.RNIJKMXqrh2\x85\x86\x87"), 12).tolist())
        )
    parts = {"upper": {}, "lower": {}, "training": None}
    garbage += [saved(x) for x in (1, [], {}, parts, parts | {"header": 1}, parts | {"header": "{"})]
    garbage += [saved(parts | {"header": json.dumps(x)}) for x in ([], {}, {"schema": "twin.hippo/1"})]
    for data in garbage:
        with pytest.raises(InputError, match=r"not a Hi-PPO checkpoint|checkpoint format"):
            checkpoint.load(named(tmp_path, data))


def test_another_architecture_is_refused(whole: tuple[Path, str]) -> None:
    wider = CONFIG.model_copy(update={"gnn": GnnConfig(hidden_dim=32)})
    with pytest.raises(UsageError, match=r"gnn.hidden_dim is 16, needed 32"):
        checkpoint.load(whole[0], wider)


def test_shipped_configuration_has_the_design_and_the_tuned_values() -> None:
    design = shipped("design")
    assert (design.ppo.lr, design.ppo.gamma, design.ppo.num_steps, design.ppo.update_epochs) == (
        3e-4,
        0.99,
        2048,
        10,
    )
    assert (design.gnn.type, design.gnn.num_layers, design.gnn.hidden_dim) == ("GraphSAGE", 2, 128)
    assert shipped("tuned").gnn.hidden_dim <= design.gnn.hidden_dim


def test_values_of_a_file_take_the_place_of_those_of_a_section(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("gnn: {type: GATv2}\nseed: 3\n", encoding="utf-8")
    tuned = shipped("tuned")
    made = changed(tuned, mine)
    assert made.gnn == tuned.gnn.model_copy(update={"type": "GATv2"}) and made.seed == 3
    assert made.ppo == tuned.ppo and made.rollout == tuned.rollout
    mine.write_text("gnn:\n  hidden_dim: few\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.yaml.*hidden_dim"):
        changed(tuned, mine)
