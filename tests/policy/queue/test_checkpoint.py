"""Files of learned orders: what is written comes back, and what does not fit is refused."""

from pathlib import Path

import numpy as np
import orjson
import pytest

from ingest.core.errors import DamageError, InputError, NotFoundError
from policy.queue import checkpoint
from policy.queue.checkpoint import LearnedOrder
from twin.core.seeds import generator
from twin.queue.recipe import JobScorer
from twin.queue.scoring import FEATURES, weights_in

WIDTHS = (len(FEATURES), 6, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    weights = generator(0, "weights").normal(size=weights_in(WIDTHS))
    checkpoint.save(tmp_path / "a.json", LearnedOrder(JobScorer(WIDTHS, weights), {"method": "ppo"}))
    return tmp_path / "a.json"


def changed(path: Path, **values: object) -> Path:
    """The file with other content under a digest that fits."""
    content = orjson.loads(path.read_bytes()) | values
    content.pop("sha256")
    content["sha256"] = checkpoint._digest(content)
    path.write_bytes(orjson.dumps(content))
    return path


def test_what_is_written_comes_back(path: Path) -> None:
    found = checkpoint.load(path)
    assert found.scorer.widths == WIDTHS
    assert np.array_equal(found.scorer.weights, generator(0, "weights").normal(size=67))
    assert (found.recipe.name, found.recipe.backfill) == ("learned", "easy")


@pytest.mark.parametrize(
    ("method", "source"), [("ppo", "Hi-PPO"), ("dd-ppo", "Sgambati"), ("sla-morl", "Mostafa")]
)
def test_a_recipe_names_the_paper_of_its_method(method: str, source: str) -> None:
    made = LearnedOrder(JobScorer(WIDTHS, np.zeros(67)), {"method": method, "heuristic": "saf"}).recipe
    assert made.source.removeprefix("after ").startswith(source)
    assert f"{method} from saf" in made.summary


def test_a_changed_file_is_damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"ppo"', b'"pp0"'))
    with pytest.raises(DamageError, match="train again"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"schema": "other/1"}, "schema 'other/1', expected"),
        ({"features": ["wait"]}, "a network of 1 features; this version has the 9"),
        ({"widths": [9, 5, 1]}, "do not fit"),
        ({"widths": [9, "6", 1]}, "do not fit"),
        ({"weights": [0.0]}, "do not fit"),
        ({"weights": [None] * 67}, "do not fit"),
        ({"weights": "many"}, "do not fit"),
        ({"features": 7}, "features"),
        ({"provenance": 7}, "provenance"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(path: Path, values: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        checkpoint.load(changed(path, **values))


def test_a_file_that_is_missing_or_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="twin train --queue"):
        checkpoint.load(tmp_path / "none.json")
    (tmp_path / "text").write_text("no json")
    with pytest.raises(InputError, match="not a learned order"):
        checkpoint.load(tmp_path / "text")
