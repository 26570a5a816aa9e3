"""docs/guides/serve.md: its routes are those of the service with their roles, its examples are taken."""

import json
import re
import time
from hashlib import sha256
from pathlib import Path

import pytest

from service.api.app import ApiSettings, make_app
from service.api.tokens import ROLES, Tokens, parsed
from service.session.observation import ItemReader
from tests.support.serving import asking, toy_session
from twin.estimation.estimator import Estimator
from twin.scenario import cluster_and_jobs
from twin.scenario import prepare as scenarios

OPEN = "-"


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "guides" / "serve.md").read_text(encoding="utf-8")


def test_the_table_of_routes_is_that_of_the_service(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = dict(re.findall(r"^\| `((?:GET|POST) /\S+)` \| (\S+) \|", page, re.MULTILINE))
    session = toy_session(tmp_path / "store", monkeypatch)
    try:
        (tmp_path / "tokens").write_text(
            "\n".join(f"{role} {role} {sha256(role.encode()).hexdigest()}" for role in ROLES)
        )
        app = make_app(session, ApiSettings(Tokens(tmp_path / "tokens")))
        there = {
            f"{method} {path}" for path, entry in app.openapi()["paths"].items()
            for method in (name.upper() for name in entry)
        }  # fmt: skip
        assert said.keys() == there
        with asking(app) as client:
            for route, role in said.items():
                method, path = route.split()
                statuses = {
                    name: client.request(
                        method, path, headers={"Authorization": f"Bearer {name}"}
                    ).status_code
                    for name in ("nobody", "read", "push", "decide")
                    if path != "/v1/stream" or name in ("nobody", "push")
                }
                assert (statuses["nobody"] == 401) == (role != OPEN), route
                for name in statuses.keys() - {"nobody"}:
                    may = role in (OPEN, name) or (name, role) == ("decide", "read")
                    assert (statuses[name] == 403) == (not may), (route, name)
    finally:
        session.close()


def test_the_observations_shown_are_accepted(page: str) -> None:
    (shown,) = re.findall(r"```ndjson\n(.*?)```", page, re.DOTALL)
    items = [{**json.loads(line), "epoch_ns": time.time_ns()} for line in shown.splitlines()]
    scenario = scenarios.load("tri-7b")
    estimator = Estimator(cluster_and_jobs.cluster(scenario.cluster, None), cluster_and_jobs.job(scenario))
    batch = ItemReader({"": estimator}).batch("k", "", items)
    assert batch.refused == () and len(batch.good) == 3


def test_the_file_of_tokens_shown_can_be_read(page: str, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(# NAME.*?)```", page, re.DOTALL)
    (tmp_path / "tokens").write_text(shown)
    first, second = parsed(tmp_path / "tokens")
    assert (first.client.roles, second.client.roles) == ({"push"}, {"read"})
    assert first.until_s is None and second.until_s is not None
