"""A package that is built and installed adds a reader and a policy; broken ones are named and left out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import environment


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example plugin installed by pip, and beside it a distribution of faulty plugins."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "plugin"
    import shutil

    shutil.copytree(repository / "examples" / "plugin", source)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
         "--disable-pip-version-check", "--target", str(target), str(source)],
        check=True,
    )  # fmt: skip
    info = target / "faulty-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(
        "[twin.readers]\nping = twin_megatest.reader:MegaTest\nabsent = no_such_module:Reader\n"
        "[twin.policies]\nmpc = twin_megatest.policy:StayHome\nbad = no_such_module:Policy\n"
    )
    return target


def twin(repository: Path, site: Path, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(repository / "cli.py"), "--store", str(store), *words],
        env=environment(repository, store, site), capture_output=True, text=True,
    )  # fmt: skip


def test_the_reader_of_a_plugin_reads_and_faulty_ones_are_named(
    repository: Path, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "night.txt").write_text("#megatest\n2026-03-01T00:00:00Z;paris;berlin;812.4\n")
    done = twin(repository, site, tmp_path / "store", "ingest", str(tmp_path / "speed"), "--json")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert (file["reader"], file["stored"]) == ("megatest", {"link_samples": 1})
    said = done.stdout + done.stderr
    assert "'ping' of faulty 2.0" in said and "taken" in said
    assert "'absent' of faulty 2.0" in said and "no_such_module" in said


def test_the_policy_of_a_plugin_is_listed_and_runs(repository: Path, site: Path, tmp_path: Path) -> None:
    listed = twin(repository, site, tmp_path, "policies", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "stay-home" in listed.stdout and "twin-megatest" in listed.stdout
    said = listed.stdout + listed.stderr
    assert "'mpc' of faulty 2.0" in said and "'bad' of faulty 2.0" in said
    assert twin(repository, site, tmp_path, "ingest", str(repository / "traces")).returncode == 0
    done = twin(
        repository, site, tmp_path, "replay", "-p", "stay-home", "-s", "tri-7b", "--from", "5000", "--json"
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["kpis"]["tokens"] > 0
    audited = twin(repository, site, tmp_path, "audit", run["run"], "--json")
    assert audited.returncode == 0, audited.stdout
