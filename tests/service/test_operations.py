"""`configs/operations`: alerts fire on what they name and on nothing else, and speak of metrics that exist.

With Prometheus's own tools where they are installed; names are checked without them.
"""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import uvicorn
import yaml
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from ingest.core import resources
from service.api.app import make_app
from tests.support.serving import api_settings, asking, links, toy_session

FOLDER = resources.configs("operations")
HEALTHY = {
    'up{job="twin"}': "1x90",
    "twin_log_problem": "0x90",
    "twin_clock_problem": "0x90",
    "twin_observations_total": "0+600x90",
    "twin_observations_refused_total": "0+1x90",
    "twin_decisions_total": "0+1x90",
    "twin_decisions_fallback_total": "0x90",
    'twin_decision_latency_seconds_bucket{le="0.1"}': "0+1x90",
    'twin_decision_latency_seconds_bucket{le="2.5"}': "0+1x90",
    'twin_decision_latency_seconds_bucket{le="+Inf"}': "0+1x90",
    "twin_order_waits": "0x90",
    "twin_queue_requests": "3x90",
    'twin_filter_innovation_ratio{src="a",dst="b"}': "1.1x90",
    'twin_forecast_coverage_ratio{interval="80",horizon="60"}': "0.81x90",
    "twin_stream_dropped_total": "0x90",
}
"""Series of a service that does well, a sample a minute."""
FAULTS = {
    "TwinDown": {'up{job="twin"}': "0x90"},
    "TwinLogCannotBeWritten": {"twin_log_problem": "1x90"},
    "TwinClockWrong": {"twin_clock_problem": "1x90"},
    "TwinNoTelemetry": {"twin_observations_total": "7x90", "twin_observations_refused_total": "1x90"},
    "TwinNoDecision": {"twin_decisions_total": "7x90"},
    "TwinObservationsRefused": {"twin_observations_refused_total": "0+60x90"},
    "TwinDecisionsSlow": {'twin_decision_latency_seconds_bucket{le="0.1"}': "0+0.5x90"},
    "TwinFallbacks": {"twin_decisions_fallback_total": "0+0.1x90"},
    "TwinOrderWaits": {"twin_order_waits": "1x90"},
    "TwinRequestsWait": {"twin_queue_requests": "800x90"},
    "TwinLinkSurprises": {'twin_filter_innovation_ratio{src="a",dst="b"}': "9x90"},
    "TwinForecastsMiss": {'twin_forecast_coverage_ratio{interval="80",horizon="60"}': "0.3x90"},
    "TwinStreamClientsDropped": {"twin_stream_dropped_total": "0+1x90"},
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def test_there_is_a_fault_for_every_alert_and_a_paragraph() -> None:
    alerts = [rule["alert"] for rule in rules()]
    assert alerts == list(FAULTS)
    page = (FOLDER.parents[1] / "docs" / "operate.md").read_text()
    assert re.findall(r"^### (Twin\w+)", page, re.MULTILINE) == alerts


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    session = toy_session(tmp_path, monkeypatch)
    yield make_app(session, api_settings())
    session.close()


def test_alerts_and_dashboard_name_metrics_that_the_service_has(app: FastAPI) -> None:
    with asking(app) as client:
        client.post("/v1/observations", json=links())
        client.post("/v1/decide")
        text = client.get("/metrics").text
    served = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    served |= {family.name for family in text_string_to_metric_families(text)}
    asked = [rule["expr"] for rule in rules()]
    board = json.loads((FOLDER / "dashboard.json").read_text())
    asked += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(re.findall(r"twin_\w+", " ".join(asked)))
    assert named <= served, named - served


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Prometheus) is not installed")
def test_each_alert_fires_on_its_fault_alone(tmp_path: Path) -> None:
    cases = [case({}, set()), *(case(series, {alert}) for alert, series in FAULTS.items())]
    body = {"rule_files": [str(FOLDER / "alerts.yaml")], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "alerts_test.yaml").write_text(yaml.safe_dump(body))
    ran = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "alerts_test.yaml")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def case(changed: dict[str, str], firing: set[str]) -> dict[str, Any]:
    """A world with some series of `HEALTHY` replaced, and how many alerts of each name fire in the end."""
    series = {**HEALTHY, **changed}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}) or vector(0)',
                "eval_time": "85m",
                "exp_samples": [{"labels": "{}", "value": int(rule["alert"] in firing)}],
            }
            for rule in rules()
        ],
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Prometheus) is not installed")
def test_prometheus_takes_the_scrape_configuration() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", str(FOLDER / "prometheus.yaml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_a_real_prometheus_scrapes_the_service(app: FastAPI, tmp_path: Path) -> None:
    with listening(app) as port:
        asked = (FOLDER / "prometheus.yaml").read_text()
        asked = asked.replace("8712", str(port)).replace("15s", "1s")
        (tmp_path / "prometheus.yaml").write_text(asked)
        shutil.copy(FOLDER / "alerts.yaml", tmp_path)
        with scraping(tmp_path) as address:
            found = answered(f"{address}/api/v1/query?query=twin_decisions_total")
            assert float(found["data"]["result"][0]["value"][1]) >= 1
            (group,) = answered(f"{address}/api/v1/rules", "groups")["data"]["groups"]
            assert len(group["rules"]) == len(FAULTS)


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """The app on a free port of the loopback address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@contextmanager
def scraping(folder: Path) -> Iterator[str]:
    """A Prometheus with the configuration in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml",
               f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def answered(address: str, part: str = "result") -> dict[str, Any]:
    """The first answer whose `part` is not empty, within half a minute."""
    for _ in range(300):
        with suppress(URLError, ConnectionError):
            found: dict[str, Any] = json.load(urlopen(address))
            if found["data"][part]:
                return found
        time.sleep(0.1)
    raise AssertionError(f"no answer of {address}")
