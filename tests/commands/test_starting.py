"""`twin init` on the traces that ship: the file replays at once, and is never overwritten unasked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from commands.starting import scenario_schema
from ingest.core.config import load
from twin.scenario.prepare import Scenario

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ingest.pipeline.ingest import ingest

    made = tmp_path_factory.mktemp("init") / "store"
    ingest([ROOT / "traces" / name for name in ("synthetic-tri", "synthetic-quad", "synthetic-gpu")], made)
    return made


def twin(store: Path, *words: str, **options: str) -> Result:
    return CliRunner().invoke(cli.twin, ["--store", str(store), *words], obj=cli.Output(), **options)  # type: ignore[arg-type]


def test_the_file_replays_at_once(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    made = twin(store, "init", str(path), "--json")
    told = json.loads(made.stdout)
    assert made.exit_code == 0 and told["schema"] == "twin.init/1" and told["scenario"]["name"] == "mine"
    assert load(Scenario, path).model_dump(mode="json") == told["scenario"]
    done = twin(
        store, "replay", "-p", "static", "-s", str(path), "--from", "13000", "--to", "13300", "--json"
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["kpis"]["tokens"] > 0, done.output


def test_a_file_is_overwritten_only_by_force(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kept")
    refused = twin(store, "init", str(path))
    assert isinstance(refused.exception, Exception) and "--force" in str(refused.exception)
    assert path.read_text() == "kept" and not (tmp_path / "scenario.schema.json").exists()
    assert twin(store, "init", str(path), "--force").exit_code == 0 and path.read_text() != "kept"


def test_answers_are_taken_and_options_are_not_asked_for(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    answers = "synthetic-tri\neu-west-1, us-east-1\n\n2\n"
    made = twin(store, "init", str(path), "--ask", "--model", "llama3-8b", input=answers)
    assert made.exit_code == 0, made.output
    scenario = load(Scenario, path)
    assert scenario.domains == ("eu-west-1", "us-east-1") and scenario.model == "llama3-8b"
    assert [domain.gpus for domain in scenario.cluster.domains] == [2, 2]
    assert "data set (" in made.stderr and "model" not in made.stderr.splitlines()[-1].split("[")[0].split(
        " "
    )


def test_the_schema_is_that_of_the_types_and_knows_the_keys() -> None:
    found = scenario_schema()
    shown = twin(Path("none"), "config", "--schema", "scenario", "--json")
    assert json.loads(shown.stdout) == found
    defined = found["$defs"]
    assert set(found["properties"]) == set(Scenario.model_fields) and found["additionalProperties"] is False
    period = defined["ControlSettings"]["properties"]["period_s"]
    assert period["minimum"] == 0.001 and "1,000 a second" in period["description"]
    assert found["properties"]["name"]["pattern"].startswith("^[A-Za-z0-9]")
    assert defined["MovingSettings"]["properties"]["stale_share"]["exclusiveMinimum"] == 0
