"""Public sets of links through their readers: units, quirks, and rows counted a second way."""

import csv
import re
import tarfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from tests.support.sets import Sets

pytestmark = pytest.mark.shared
NAMES = (
    "intercloud-throughput",
    "ripe-atlas-rtt",
    "ibm-interregion-latency",
    "geant-traffic-matrices",
    "netlatency-seattle",
)


@pytest.fixture(scope="module")
def sets(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(shared / "traces/wan", tmp_path_factory.mktemp("links") / "store", *NAMES)


def here(dataset: str, rest: str = "") -> str:
    return f"FROM link_samples WHERE dataset = '{dataset}' {rest}"


def test_every_file_is_read_and_adds_up(sets: Sets) -> None:
    for file in sets.report.files:
        if file.dataset in NAMES:
            assert file.reader and not file.skipped_reason, file.path
            assert file.rows_in == sum(file.stored.values()) + file.rejected, file.path


def test_intercloud_bytes_of_a_run_become_a_rate(sets: Sets) -> None:
    with (sets.folder / NAMES[0] / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert sets.one(f"SELECT count(*) {here(NAMES[0])}") == len(rows) == 2138
    least, mean, most = sets.one(
        f"SELECT min(bandwidth_bps), avg(bandwidth_bps), max(bandwidth_bps) {here(NAMES[0])}"
    )
    assert (least, most) == (pytest.approx(0.94e6, rel=0.01), pytest.approx(4075e6, rel=0.001))
    assert mean == pytest.approx(sum(float(row["bitrate_Bps"]) for row in rows) * 8 / 10 / len(rows))
    assert most == max(float(row["bitrate_Bps"]) for row in rows) * 8 / 10
    assert sets.one(f"SELECT count(DISTINCT (src, dst)), max(rtt_s) < 1 {here(NAMES[0])}") == (1556, True)
    # both forms of stamp: with and without a fraction of a second
    assert sets.one(f"SELECT count(*) {here(NAMES[0], 'AND epoch_ns(ts) % 1000000000 <> 0')}") == 881
    place = sets.one("SELECT latitude_deg, longitude_deg FROM places WHERE site = 'aws:af-south-1'")
    assert place == (-33.92, 18.42)


def test_labelled_rtt_dates_failures_and_missing_line_ends(sets: Sets) -> None:
    counted, failed = 0, Counter[str]()
    for path in (sets.folder / NAMES[1]).glob("*.csv"):
        values = [line.split(";")[1] for line in path.read_bytes().decode().splitlines()[1:]]
        counted += sum(float(value) >= 0 for value in values)
        failed.update(value for value in values if float(value) < 0)
    assert failed == {"-3": 324, "-4": 197}
    assert sets.one(f"SELECT count(*) {here(NAMES[1])}") == counted
    rejects = sets.all(
        f"SELECT raw, count(*) FROM rejects WHERE dataset = '{NAMES[1]}' GROUP BY 1 ORDER BY 1"
    )
    assert rejects == [("-3", 324), ("-4", 197)]
    # day first: 14/10/2016 21:17, and the last line, which has no end
    ends = f"SELECT min(ts), max(ts), max(rtt_s) {here(NAMES[1], 'AND src = $$probe-11119$$')}"
    first, last, most = sets.one(ends)
    assert (first, last) == (datetime(2016, 10, 14, 21, 17), datetime(2016, 11, 11, 15, 57))
    assert 0.15 < most < 2
    assert sets.one(f"SELECT min(ts) {here(NAMES[1], 'AND src = $$probe-11150$$')}") == datetime(
        2016, 11, 19, 23, 59, 28
    )
    means = sets.all(f"SELECT avg(rtt_s) {here(NAMES[1])} GROUP BY src")
    assert (min(means)[0], max(means)[0]) == (pytest.approx(0.072, abs=1e-3), pytest.approx(0.369, abs=1e-3))


def test_latency_tables_sections_and_weeks_that_stand_in_two_files(sets: Sets) -> None:
    cells = 0
    for path in (sets.folder / NAMES[2]).glob("*.md"):
        for line in path.read_text().splitlines():
            if line.startswith("| **"):
                cells += sum(bool(cell.strip()) for cell in line.strip().strip("|").split("|")[1:])
    assert sets.one(f"SELECT count(*) {here(NAMES[2])}") == cells
    assert sets.one(f"SELECT count(DISTINCT ts), min(ts), max(ts) {here(NAMES[2])}") == (
        180, datetime(2023, 3, 12), datetime(2026, 8, 16)
    )  # fmt: skip
    two = f"SELECT ts, src, dst {here(NAMES[2])} GROUP BY ALL "
    assert sets.one(f"SELECT count(DISTINCT ts) FROM ({two} HAVING count(DISTINCT source_file) > 1)") == 6
    assert sets.one(f"SELECT count(*) FROM ({two} HAVING max(rtt_s) > min(rtt_s))") == 0
    eight = "Dallas Toronto Washington_DC Frankfurt London Osaka Sydney Sao_Paulo".replace(" ", "','")
    among = f"('{eight}')".replace("_", " ")
    mean, least, most = sets.one(
        "SELECT avg(rtt_s), min(rtt_s), max(rtt_s) "
        + here(NAMES[2], f"AND src IN {among} AND dst IN {among}")
    )
    assert (mean, least, most) == (pytest.approx(0.153, abs=1e-3), 0.012, 0.335)


def test_slices_are_seconds_in_order_and_held_once(sets: Sets) -> None:
    values, diagonal, zeros, count = 0.0, 0, 0, 0
    with tarfile.open(sets.folder / NAMES[4] / "Seattle.tar.xz") as tar:
        for member in tar:
            stream = tar.extractfile(member)
            if stream is not None and re.search(r"_\d*7$", member.name):  # a tenth of the slices
                matrix = np.loadtxt(stream, delimiter="\t")
                off = ~np.eye(len(matrix), dtype=bool)
                diagonal, zeros = (
                    diagonal + int((matrix[~off] != 0).sum()),
                    zeros + int((matrix[off] == 0).sum()),
                )
                values, count = values + float(matrix[off].sum()), count + 1
    tenth = "AND regexp_matches(source_file, '_\\d*7$')"
    stored, total = sets.one(f"SELECT count(*), sum(rtt_s) {here(NAMES[4], tenth)}")
    assert (stored, total) == (count * 99 * 98 - zeros, pytest.approx(values))
    reasons = f"SELECT count(*) FROM rejects WHERE dataset = '{NAMES[4]}' AND reason LIKE "
    assert sets.one(f"{reasons} '0:%' {tenth}") == zeros
    assert sets.one(f"{reasons} '%itself' {tenth}") == diagonal
    assert (sets.one(f"{reasons} '%itself'"), sets.one(f"{reasons} '0:%'")) == (6189, 38145)
    assert sets.one(f"SELECT max(rtt_s), count(*), count(DISTINCT ts) {here(NAMES[4])}") == (
        90.5, 688 * 99 * 98 - 38145, 688
    )  # fmt: skip
    files = sets.files(NAMES[4])
    assert (len(files), sum(file.already for file in files)) == (688 + 24, 24)
    step = sets.all(f"SELECT DISTINCT epoch_ns(ts) AS t {here(NAMES[4])} ORDER BY 1 LIMIT 2")
    assert step[1][0] - step[0][0] == 15_700_000_000


def test_matrices_and_capacities_of_geant(sets: Sets) -> None:
    matrix = np.loadtxt(sets.folder / NAMES[3] / "7.hist")
    loads = here(NAMES[3], "AND kind = 'load'")
    count, total, most = sets.one(f"SELECT count(*), sum(bandwidth_bps), max(bandwidth_bps) {loads}")
    assert (count, total, most) == (677 * 462, pytest.approx(matrix.sum()), matrix.max())
    assert total / 677 == pytest.approx(43.6e9, rel=0.001)
    row = sets.one(
        f"SELECT bandwidth_bps {loads} AND src = 'node-3' AND dst = 'node-21' ORDER BY ts DESC LIMIT 1"
    )
    assert row == matrix[-1, 3 * 22 + 21]
    links = sets.all(
        f"SELECT bandwidth_bps, count(*) {here(NAMES[3], 'AND kind = $$capacity$$')} GROUP BY 1 ORDER BY 1"
    )
    assert [rate for rate, _ in links] == [155e6, 2.4e9, 10e9]
    assert sum(number for _, number in links) == 72
    assert sets.one(f"SELECT epoch_ns(max(ts)) - epoch_ns(min(ts)) {loads}") == 676 * 900 * 10**9
