"""Scraped metrics: units, scrapes, counters and labels, by hand; the three forms give the same rows."""

from pathlib import Path

import pytest

from ingest.lake import lake
from tests.support.kit import lines
from tests.support.kits_gpu import EXPORTER, POWER, USED, answer, sample, scraped, sent, series
from tests.support.sets import Sets

GPU = "SELECT epoch_ns(ts), host, gpu, gpu_model, power_w, mem_used_bytes FROM gpu_samples ORDER BY ts, gpu"
HOST = "SELECT epoch_ns(ts), host, net_tx_bytes_s FROM host_samples ORDER BY ts"


def stored(tmp_path: Path, name: str, content: bytes, toml: str = "start = 2025-07-18T20:42:34Z") -> Sets:
    folder = tmp_path / name.replace(".", "-")
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "dataset.toml").write_text(toml)
    return Sets(folder, tmp_path / f"{folder.name}.store", ".")


def assumed(sets: Sets) -> str:
    (info,) = lake.datasets(sets.store).values()
    return " | ".join(info.meta["assumptions"])


def test_three_forms_of_a_scrape_give_the_same_rows(tmp_path: Path) -> None:
    ts = 1752871354
    text = lines(sample(POWER, 397.3), sample(USED, 1024))
    json = answer(series(POWER, [ts, "397.3"]), series(USED, [ts, "1024"]))
    table = lines(EXPORTER, scraped(POWER, "397.3"), scraped(USED, "1024"))
    wanted = [(ts * 10**9, "n31", "0", "NVIDIA H100", 397.3, 1024 * 2**20)]
    assert stored(tmp_path, "a.prom", text).all(GPU) == wanted
    assert stored(tmp_path, "a.json", json).all(GPU) == wanted
    table_rows = stored(tmp_path, "a.csv", table).all(GPU)
    assert table_rows == wanted


@pytest.mark.parametrize("stamp", ["1752871354250", "1752871354.25"])
def test_times_in_text_are_milliseconds_or_openmetrics_seconds(stamp: str, tmp_path: Path) -> None:
    rows = stored(tmp_path, "a.prom", lines(f"{sample(POWER, 1)} {stamp}")).all(GPU)
    assert rows[0][0] == 1752871354_250_000_000


def test_a_repeated_series_begins_the_next_scrape(tmp_path: Path) -> None:
    content = lines(*[sample(POWER, value) for value in (1, 2, 3)])
    sets = stored(tmp_path, "a.prom", content, "start = 1970-01-02T00:00:00Z\ninterval_s = 2.5")
    assert [row[0] / 1e9 for row in sets.all(GPU)] == [86400, 86402.5, 86405]
    assert "2.5 s apart" in assumed(sets)


def test_a_spacing_is_assumed_only_where_a_sample_has_no_stamp(tmp_path: Path) -> None:
    sets = stored(tmp_path, "a.prom", lines(*[f"{sample(POWER, 1)} 175287135{n}000" for n in range(3)]))
    assert [row[0] / 1e9 for row in sets.all(GPU)] == [1752871350, 1752871351, 1752871352]
    assert "apart" not in assumed(sets) and "FB_USED + FB_FREE" in assumed(sets)


def test_counters_become_rates_over_devices_and_survive_a_restart(tmp_path: Path) -> None:
    counts = [(1e9, 5e9), (1.15e9, 5.3e9), (1.0e6, 5.6e9), (3.1e7, 5.6e9)]
    content = lines(*[line for a, b in counts for line in (sent(a), sent(b, "eth1"), sent(9e9, "lo"))])
    sets = stored(tmp_path, "node.prom", content, "start = 1970-01-02T00:00:00Z")
    rates = [(row[0] / 1e9 - 86400, row[1], row[2]) for row in sets.all(HOST)]
    # 15 s apart; eth0 restarts in the third scrape
    assert rates == [(15, "n31", pytest.approx(3e7)), (30, "n31", 2e7), (45, "n31", pytest.approx(2e6))]


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    odd = r'DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="a \"b\\c, d=}",modelName="X",} 5'
    assert stored(tmp_path, "a.prom", lines(odd)).all(GPU)[0][1] == 'a "b\\c, d=}'


def test_a_vector_and_a_host_from_its_instance(tmp_path: Path) -> None:
    labels = {"__name__": POWER, "gpu": "3", "instance": "10.0.0.1:9400"}
    content = answer({"metric": labels, "value": [1700000000.5, "7"]}, kind="vector")
    assert stored(tmp_path, "q.json", content).all(GPU) == [
        (1700000000_500_000_000, "10.0.0.1", "3", None, 7.0, None)
    ]


def test_metrics_asked_for_one_after_the_other_are_one_sample(tmp_path: Path) -> None:
    at = "2025-07-18T20:42:{:02d}Z".format
    content = lines(
        EXPORTER,
        *[scraped(POWER, str(s), ts=at(s)) for s in (10, 25, 40)],
        *[scraped(USED, str(s), ts=at(s + 2)) for s in (10, 25, 40)],
    )
    rows = stored(tmp_path, "a.csv", content).all(GPU)
    assert [(row[4], row[5]) for row in rows] == [(s, s * 2**20) for s in (10, 25, 40)]


def test_unknown_metrics_are_no_rows(tmp_path: Path) -> None:
    sets = stored(
        tmp_path, "a.prom", lines("node_load1 3", "go_threads 4", sample("DCGM_FI_DEV_ENC_UTIL", 1))
    )
    (file,) = sets.report.files
    assert (file.reader, file.rows_in, sets.all(GPU)) == ("prometheus-text", 0, [])
