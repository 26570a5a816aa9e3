import re
import socket
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ingest.core.errors import UsageError
from replay.live.exposition import CONTENT_TYPE, Metric, Sample, one, text
from replay.live.metrics_server import serving
from replay.live.pace import Pace
from replay.live.run_metrics import run_metrics, training_metrics
from replay.live.run_snapshot import DecisionNow, LinkNow, PlanNow, RunSnapshot, ShareNow
from replay.live.training_curves import TrainingCurves
from replay.metrics.kpis import KpiFold

LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (\S+)')
UNITS = ("seconds", "bytes", "joules", "usd", "ratio", "tokens", "second", "info")
KPIS = replace(KpiFold().kpis(), iterations=7, tokens=900, egress_usd=1.5, energy_j=2e6, utilisation=0.5)
RUN = RunSnapshot(
    "tri-7b",
    "mpc",
    3,
    "kernel",
    60.0,
    600.0,
    300.0,
    links=(LinkNow('a"b', "c\\d", 8e9, 4e9, 2e9, 0.05), LinkNow("c\\d", 'a"b', 0.0)),
    plans=(PlanNow("", (ShareNow("x", 3, 1, 2, 4), ShareNow("y", 5, 2, 1, 8)), 2, "1f1b", 10.0),),
    decisions=(DecisionNow(0, 0.0, "", "start", "move", "first plan", 0.01),),
    kpis=KPIS,
    finished=False,
)


def parsed(shown: str) -> dict[str, list[tuple[str, float]]]:
    """Name -> (labels, value) of each sample; every line is checked against the format."""
    found: dict[str, list[tuple[str, float]]] = {}
    kinds: dict[str, str] = {}
    assert shown.endswith("\n")
    for line in shown.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds and kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total"), name
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match and match[1] in kinds, line
            found.setdefault(match[1], []).append((match[2] or "", float(match[3])))
    return found


def test_text_is_that_of_the_format() -> None:
    labels = {"src": 'a"b', "dst": "c\\d\ne"}
    metrics = [
        Metric("twin_a_total", "counter", "Line\nbreak.", [Sample(2, labels), Sample(0.5)]),
        Metric("twin_none", "gauge", "Nothing.", ()),
        one("twin_b", "gauge", "Without end.", float("inf")),
    ]
    assert text(metrics) == (
        "# HELP twin_a_total Line\\nbreak.\n# TYPE twin_a_total counter\n"
        'twin_a_total{src="a\\"b",dst="c\\\\d\\ne"} 2\ntwin_a_total 0.5\n'
        "# HELP twin_b Without end.\n# TYPE twin_b gauge\ntwin_b +Inf\n"
    )


def test_metrics_of_a_run_have_base_units_and_its_values() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    pace.start(1000, "mpc")
    now[0] = 5.0
    pace.advance(250)
    found = parsed(text(run_metrics(RUN, pace)))
    ends = 'src="a\\"b",dst="c\\\\d"'
    assert found["twin_link_bandwidth_bytes_per_second"][0] == (ends, 1e9)
    assert [value for _, value in found["twin_link_bandwidth_bytes_per_second"]] == [1e9, 0.0]
    assert found["twin_link_forecast_bytes_per_second"] == [(ends, 2.5e8)]
    assert found["twin_link_latency_seconds"] == [(ends, 0.05)]
    assert found["twin_plan_layers"] == [
        ('job="",position="0",site="x"', 3.0),
        ('job="",position="1",site="y"', 5.0),
    ]
    single = {name: samples[0][1] for name, samples in found.items() if len(samples) == 1}
    wanted = {
        "iterations_total": 7,
        "trained_tokens": 900,
        "egress_usd_total": 1.5,
        "energy_joules_total": 2e6,
    }
    wanted |= {"simulated_seconds_total": 60, "task_done_ratio": 0.25, "task_left_seconds": 15}
    assert wanted.items() <= {name.removeprefix("twin_"): value for name, value in single.items()}.items()
    assert "twin_token_seconds" not in found  # no value yet: left out, not zero


def test_before_the_first_event_only_the_task_is_told() -> None:
    assert set(parsed(text(run_metrics(None, Pace())))) == {"twin_task_elapsed_seconds"}


class Point:
    def __init__(self, stage: str, update: int, steps: int, **metrics: float) -> None:
        self.stage, self.update, self.steps, self.metrics = stage, update, steps, metrics


def test_metrics_of_a_training_are_by_stage() -> None:
    state = TrainingCurves()
    for point in (
        Point("imitation", 0, 0, loss=2.0),
        Point("ppo", 0, 128, reward=0.1, entropy=3.0),
        Point("ppo", 1, 256, reward=0.3),
        Point("ppo", 1, 256, validation_score=0.7),
    ):
        state.tell(point)
    found = parsed(text(training_metrics(state.latest, Pace())))
    assert found["twin_training_updates_total"] == [('stage="imitation"', 1.0), ('stage="ppo"', 3.0)]
    assert found["twin_training_environment_steps_total"][1] == ('stage="ppo"', 256.0)
    assert ('stage="ppo",figure="entropy"', 3.0) in found["twin_training_figure"]  # kept from before
    assert ('stage="ppo",figure="validation_score"', 0.7) in found["twin_training_figure"]
    assert [stage.curve for stage in state.latest] == [(2.0,), (0.1, 0.3)]


def test_a_server_answers_scrapes_and_is_gone_afterwards() -> None:
    asked = []

    def collect() -> list[Metric]:
        asked.append(1)
        return [one("twin_asked_total", "counter", "Scrapes.", len(asked))]

    with serving(0, collect) as address:
        assert address.startswith("http://127.0.0.1:")
        for count in (1, 2):
            with urlopen(address, timeout=5) as answer:
                assert answer.headers["Content-Type"] == CONTENT_TYPE
                assert parsed(answer.read().decode()) == {"twin_asked_total": [("", count)]}
        with pytest.raises(HTTPError, match="404"):
            urlopen(address.replace("/metrics", "/etc/passwd"), timeout=5)
        port = int(address.rsplit(":", 1)[1].removesuffix("/metrics"))
        with pytest.raises(UsageError, match=rf"--metrics-port {port}: another process uses it; .* or 0"):
            serving(port, collect).__enter__()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
