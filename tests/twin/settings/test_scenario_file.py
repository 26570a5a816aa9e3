from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from tests.support.worlds import toy_scenario
from twin.scenario import prepare


def written(folder: Path, repository: Path, engine: str) -> Path:
    shipped = (repository / "configs" / "scenarios" / "tri-7b.yaml").read_text(encoding="utf-8")
    path = folder / "mine.yaml"
    path.write_text(f"{shipped}\nfilter:\n  engine: {engine}\n", encoding="utf-8")
    return path


def test_a_filter_engine_is_chosen_by_name(repository: Path, tmp_path: Path) -> None:
    assert prepare.load(str(written(tmp_path, repository, "ewma"))).filter.engine == "ewma"


def test_an_unknown_filter_engine_is_an_error_with_file_line_value_and_choices(
    repository: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, repository, "kalman")
    line = len(path.read_text(encoding="utf-8").splitlines())
    with pytest.raises(UsageError) as error:
        prepare.load(str(path))
    assert str(error.value) == (
        f"{path}:{line} filter.engine: Input should be 'bank', 'filterpy', 'gru', 'ewma' or 'persistence', "
        "not 'kalman'"
    )


def test_the_default_engine_leaves_the_digest_of_a_scenario_alone() -> None:
    assert toy_scenario(filter={"engine": "bank"}).model_dump_json() == toy_scenario().model_dump_json()
    assert "filter" not in toy_scenario().model_dump_json()
    other = toy_scenario(filter={"engine": "gru"})
    assert prepare.digest(other) != prepare.digest(toy_scenario())
    assert prepare.Scenario.model_validate(other.model_dump(mode="json")) == other
