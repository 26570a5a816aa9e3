"""Plan files: what is written is read again; plans of other models and other files are refused."""

from pathlib import Path

import pytest
import yaml

from ingest.core.errors import InputError, UsageError
from replay.planning import plan_file
from replay.planning.candidates import EQUAL, planned
from replay.planning.figures import PlanFigures, figures
from replay.planning.record import Record
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.plan import Plan
from twin.estimation.link_state_times import States
from twin.scenario.prepare import load


def record() -> Record:
    setup = toy_setup(2)
    states = States.of([setup.wan.at(0)])
    return Record(setup.scenario, setup.estimator(), states, None, "toy", "all", 0.0, "")


def equal_cuts() -> tuple[Record, PlanFigures]:
    made = record()
    plan = planned(made, [EQUAL])[EQUAL]
    assert isinstance(plan, Plan)
    found = figures(made, plan, EQUAL)
    assert found is not None
    return made, found


def test_a_written_plan_is_read_again(tmp_path: Path) -> None:
    made, found = equal_cuts()
    plan_file.write(tmp_path / "plan.yaml", made.scenario, found)
    assert plan_file.read(tmp_path / "plan.yaml", made.scenario) == found.plan


def test_a_plan_of_another_model_or_cluster_is_refused(tmp_path: Path) -> None:
    made, found = equal_cuts()
    path = tmp_path / "plan.yaml"
    plan_file.write(path, made.scenario, found)
    with pytest.raises(UsageError, match="model llama2-7b, but toy-2 has llama2-13b"):
        plan_file.read(path, toy_scenario(2, model="llama2-13b"))
    with pytest.raises(UsageError, match="domains d0, d1, but toy-3 has d0, d1, d2"):
        plan_file.read(path, toy_scenario(3))


def test_a_plan_brings_its_scenario_by_name_if_it_ships_and_whole_if_not(tmp_path: Path) -> None:
    made, found = equal_cuts()
    plan_file.write(tmp_path / "toy.yaml", made.scenario, found)
    assert plan_file.world(tmp_path / "toy.yaml") == made.scenario
    shipped = load("tri-7b")
    plan_file.write(tmp_path / "tri.yaml", shipped, found)
    assert "world" not in (tmp_path / "tri.yaml").read_text()
    assert plan_file.world(tmp_path / "tri.yaml") == shipped


@pytest.mark.parametrize("key", ["schema", "plan"])
def test_a_file_without_a_plan_is_refused(tmp_path: Path, key: str) -> None:
    made, found = equal_cuts()
    path = tmp_path / "plan.yaml"
    plan_file.write(path, made.scenario, found)
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    del body[key]
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    with pytest.raises(InputError, match="twin plan --out FILE"):
        plan_file.read(path, made.scenario)


def test_parts_add_up_to_the_iteration_and_constant_links_have_one_rate() -> None:
    made, found = equal_cuts()
    assert found.compute_s + found.exposed_comm_s + found.bubble_s == pytest.approx(found.iteration_s)
    assert len(set(found.tokens_per_s)) == 1
    tokens = made.estimator.tokens(found.plan)
    assert found.mean_tokens_per_s == pytest.approx(tokens / found.iteration_s)
    assert found.egress_usd_per_day == pytest.approx(found.estimate.usd * 86_400 / found.iteration_s)
