"""docs/reference/scenarios.md says what the definitions say, and its example is a scenario that runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from tests.support import scenario_page

SITES = ("paris", "berlin", "madrid")


def twin(store: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.twin, ["--store", str(store), *words])


def test_the_page_is_current() -> None:
    page = scenario_page.PAGE.read_text(encoding="utf-8")
    assert page == scenario_page.made(), "run: python -m tests.support.scenario_page"


def test_the_example_runs_on_measurements_between_its_sites(tmp_path: Path) -> None:
    scenario, folder = tmp_path / "three.yaml", tmp_path / "my-links"
    scenario.write_text(scenario_page.EXAMPLE, encoding="utf-8")
    folder.mkdir()
    rows = ["ts,src,dst,bandwidth_bps,rtt_s,streams"]
    for hour in range(12):
        for src in SITES:
            rows += [
                f"2026-03-01T{hour:02}:00:00Z,{src},{dst},{5e8 + 1e7 * hour},0.02,1"
                for dst in SITES
                if dst != src
            ]
    (folder / "links.csv").write_text("\n".join(rows), encoding="utf-8")
    assert twin(tmp_path / "store", "ingest", str(folder)).exit_code == 0
    shown = twin(tmp_path / "store", "replay", "-p", "static", "-s", str(scenario))
    assert shown.exit_code == 0 and "time per token" in shown.output, shown.output


@pytest.mark.parametrize(
    ("was", "is_", "told"),
    [
        ("llama2-13b", "qwen2-72b", "qwen2-72b"),
        ("gpu: h100", "gpu: h10", "h10"),
        ("gpus: 8}", "gpus: 12}", "do not fill nodes of 8"),
    ],
)
def test_what_cannot_be_built_is_told_when_the_file_is_read(
    tmp_path: Path, was: str, is_: str, told: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(scenario_page.EXAMPLE.replace(was, is_), encoding="utf-8")
    shown = twin(tmp_path, "config", "-s", str(path))
    assert shown.exit_code != 0 and str(path) in str(shown.exception) and told in str(shown.exception)
