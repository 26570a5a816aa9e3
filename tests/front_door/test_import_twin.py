"""`import twin`: light, complete, typed, and the same numbers as the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
import twin
from policy.core import registry
from tests.support import api_page
from tests.support.heavy_modules import HEAVY


def test_the_import_loads_nothing_heavy(repository: Path) -> None:
    code = f"import sys, twin; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", twin.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    assert getattr(twin, name).__doc__


def test_names_are_the_same_for_users_and_for_type_checkers(repository: Path) -> None:
    import ast

    tree = ast.parse((repository / "twin" / "__init__.py").read_text())
    checking = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed) == sorted(twin._WHERE) == sorted(twin.__all__) == twin.__all__
    for name, place in twin._WHERE.items():
        module, _, attribute = place.partition(":")
        assert typed[name] == f"{module}:{attribute or name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        twin.nothing  # noqa: B018


def test_the_page_is_current() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.made(), (
        "run: python -m tests.support.api_page"
    )


@pytest.fixture(autouse=True)
def registered_here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "POLICIES", dict(registry.POLICIES))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> twin.Store:
    found = twin.Store(tmp_path_factory.mktemp("store"))
    found.ingest()
    return found


@pytest.fixture(scope="module")
def run(store: twin.Store) -> twin.Run:
    return twin.replay("static", "tri-7b", store=store, window=("4500", None))


def test_query_results_come_as_arrow_polars_and_rows(store: twin.Store) -> None:
    found = store.sql("select dataset, count(*) as samples from link_samples group by all order by all")
    assert found.columns == ("dataset", "samples") and len(found) == len(found.rows())
    assert found.pl().to_dicts() == found.rows() == found.arrow.to_pylist()


def test_a_run_is_listed_and_has_what_the_command_line_says(store: twin.Store, run: twin.Run) -> None:
    assert [each.id for each in store.runs()] == [run.id] and store.run("latest") == run
    assert (run.policy, run.scenario, run.finished) == ("static", "tri-7b", True)
    assert run.kpis.tokens > 0 and len(run.decisions()) == run.kpis.decisions
    assert run.audit(chain_head=run.chain_head).ok
    assert run.report().read_text().startswith("<!doctype html>")
    (row,) = store.sql("select tokens from runs").rows()
    assert row["tokens"] == run.kpis.tokens


def test_runs_of_one_world_are_compared_and_others_refused(store: twin.Store, run: twin.Run) -> None:
    other = twin.replay("single", "tri-7b", store=store, window=("4500", None))
    compared = store.compare(run, other, bound=False)
    assert [row.policy for row in compared.rows] == ["static", "single"]
    elsewhere = twin.replay("static", "tri-7b", store=store, window=("5000", None))
    with pytest.raises(twin.TwinError, match="another world"):
        store.compare(run, elsewhere)
    with pytest.raises(twin.TwinError, match="at least two"):
        store.compare(run)


def test_compare_takes_the_window_of_replay(store: twin.Store, run: twin.Run) -> None:
    found = twin.compare(["static", "single"], "tri-7b", store=store, window=("4500", None), bound=False)
    assert [row.policy for row in found.rows] == ["static", "single"]
    kpis = found.rows[0].kpis
    assert kpis is not None and kpis.tokens == run.kpis.tokens and found.wall_s == run.kpis.wall_s


class Holds:
    """Starts with the static plan and holds."""

    name = "holds"

    def reset(self, context: twin.Context) -> None:
        self.inner = registry.create("static")
        self.inner.reset(context)

    def decide(self, view: twin.View) -> twin.Decision:
        return self.inner.decide(view)


def test_a_policy_object_runs_as_the_registered_ones_do(store: twin.Store, run: twin.Run) -> None:
    mine = twin.replay(Holds(), "tri-7b", store=store, window=("4500", None))
    assert mine.policy == "holds" and mine.kpis.tokens == run.kpis.tokens
    assert mine.audit().ok


def test_a_policy_object_may_not_take_a_shipped_name(store: twin.Store) -> None:
    class Static(Holds):
        name = "static"

    with pytest.raises(twin.TwinError, match="static"):
        twin.replay(Static(), "tri-7b", store=store)


def test_cases_are_estimated_from_mappings_and_files(tmp_path: Path, store: twin.Store) -> None:
    case = {"layers": 32, "hidden": 4096, "heads": 32, "gpus": 8, "tp": 4, "pp": 2, "global_batch": 32}
    (tmp_path / "cases.csv").write_text(",".join(case) + "\n" + ",".join(map(str, case.values())) + "\n")
    one = twin.estimate(case, store=store)
    table = twin.estimate(tmp_path / "cases.csv", store=store)
    assert one.iter_s > 0 and [answer.iter_s for _, answer in table.rows] == [one.iter_s]
    assert [answer.iter_s for answer in twin.estimate([case], store=store)] == [one.iter_s]
    with pytest.raises(twin.TwinError, match="did you mean 'gpus'"):
        twin.estimate({**case, "gpuss": 8}, store=store)


def test_plans_are_those_of_the_command_and_slower_links_never_help(store: twin.Store) -> None:
    usual = twin.plan("tri-7b", store=store, top=2)
    command = CliRunner().invoke(cli.twin, ["--store", str(store.path), "--json", "plan", "--top", "2"])
    assert json.loads(command.output) == json.loads(json.dumps(usual.to_json()))
    first, second = usual.plans
    assert first.mean_tokens_per_s >= second.mean_tokens_per_s
    links = usual.record.typical
    now, slow = (
        twin.plan(
            "tri-7b", store=store, links=twin.LinkState(links.bandwidth_bps * share, links.latency_s), top=1
        )
        for share in (1.0, 0.25)
    )
    assert now.plans[0].mean_tokens_per_s >= slow.plans[0].mean_tokens_per_s


def test_a_plan_for_sites_in_words(store: twin.Store) -> None:
    found = twin.plan(
        model="llama2-7b", sites="us: 4 x A100-80, eu: 4 x A100-80", links="synthetic-tri", store=store, top=1
    )
    assert found.record.scenario.domains == ("us", "eu") and len(found.plans) == 1
    with pytest.raises(twin.TwinError, match="--sites, --links missing"):
        twin.plan(model="llama2-7b", store=store)
    with pytest.raises(twin.TwinError, match="leave out scenario"):
        twin.plan("tri-7b", model="llama2-7b", store=store)


def test_the_environment_opens(store: twin.Store) -> None:
    env = twin.environment("tri-7b", store=store)
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
