"""Tables of strangers: JSON, NDJSON, wide CSV, time that is counted, several tables in one file."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.mapping.json_paths import MISSING, JsonColumn, rows, steps
from tests.support.kit import lines

PAGE = (Path(__file__).parents[3] / "docs/guides/own-data.md").read_text()
AT = datetime(2026, 3, 1)
LINK = 'table = "link_samples"\n'
ENDS = '[values]\nsrc = "a"\ndst = "b"\n'


def after(*seconds: float) -> list[tuple[datetime]]:
    return [(datetime.fromtimestamp(AT.timestamp() + s),) for s in seconds]


def block(name: str) -> str:
    found = re.search(rf'```toml\n(name = "{name}".*?)```', PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_json_of_the_guide(put) -> None:  # type: ignore[no-untyped-def]
    content = re.search(r'```json\n(\{"links".*?)```', PAGE, re.DOTALL)
    assert content is not None
    sql = put({"links.json": content[1].encode(), "dataset.toml": block("json-links").encode()})
    found = sql("SELECT ts, src, dst, bandwidth_bps, source_row FROM link_samples ORDER BY ts")
    assert found == [
        (AT, "paris", "berlin", 812.5e6, 1),
        (datetime(2026, 3, 1, 0, 5), "paris", "berlin", 790e6, 2),
    ]


def test_the_wide_csv_of_the_guide(put) -> None:  # type: ignore[no-untyped-def]
    content = re.search(r"```csv\n(Load of.*?)```", PAGE, re.DOTALL)
    assert content is not None
    sql = put({"load.csv": content[1].encode(), "dataset.toml": block("wide-links").encode()})
    found = sql("SELECT ts, dst, bandwidth_bps FROM link_samples ORDER BY ALL")
    first, second = datetime(2026, 2, 28, 23), datetime(2026, 2, 28, 23, 5)
    assert found == [
        (first, "berlin", 812.5e6),
        (first, "madrid", 655.2e6),
        (second, "berlin", 790e6),
        (second, "madrid", 640.1e6),
    ]


def test_ndjson_names_the_line_that_is_no_json(put) -> None:  # type: ignore[no-untyped-def]
    content = lines(
        '{"t": 1772323200, "net": {"bps": 1e8}}', '{"t": ', '{"t": 1772323260, "net": {"bps": "2e8"}}'
    )
    toml = LINK + '[columns]\nts = "t"\nbandwidth_bps = "net.bps"\n' + ENDS
    sql = put({"log.ndjson": content, "dataset.toml": toml.encode()})
    assert sql("SELECT source_row, bandwidth_bps FROM link_samples ORDER BY 1") == [(1, 1e8), (3, 2e8)]
    assert sql("SELECT source_row, reason FROM rejects") == [(2, "not JSON")]


def test_lists_side_by_side_and_pairs_are_tables(put) -> None:  # type: ignore[no-untyped-def]
    document = {"data": {"t": [1772323200, 1772323260], "v": [1e8, 2e8], "peer": "b"}}
    toml = (
        LINK + 'rows = "data"\n[columns]\nts = "t"\nbandwidth_bps = "v"\ndst = "peer"\n[values]\nsrc = "a"\n'
    )
    sql = put({"columns.json": json.dumps(document).encode(), "dataset.toml": toml.encode()})
    assert sql("SELECT dst, bandwidth_bps FROM link_samples ORDER BY 2") == [("b", 1e8), ("b", 2e8)]


def test_pairs_under_names(put) -> None:  # type: ignore[no-untyped-def]
    document = {"paris": {"berlin": [[1e8, 1772323200], [2e8, 1772323260]]}}
    columns = '[columns]\nts = "1"\nbandwidth_bps = "0"\nsrc = ".*@"\ndst = ".*.*@"\n'
    toml = LINK + 'rows = "*.*[]"\n' + columns
    sql = put({"pairs.json": json.dumps(document).encode(), "dataset.toml": toml.encode()})
    found = sql("SELECT src, dst, bandwidth_bps FROM link_samples ORDER BY 3")
    assert found == [("paris", "berlin", 1e8), ("paris", "berlin", 2e8)]


def test_wide_csv_with_several_quantities_of_a_gpu(put) -> None:  # type: ignore[no-untyped-def]
    toml = 'table = "gpu_samples"\n[columns]\nts = "time"\n[melt]\n'
    toml += 'columns = "gpu(?P<gpu>[0-9]+)[.](?P<measure>.*)"\n'
    toml += 'values = {power = "power_w", util = "util"}\n[units]\nutil = "%"\n'
    content = lines(
        "time,gpu0.power,gpu0.util,gpu1.power,gpu1.fan", "1772323200,300,50,310,9", "1772323201,,,320,9"
    )
    sql = put({"wide.csv": content, "dataset.toml": toml.encode()})
    found = sql("SELECT gpu, power_w, util, source_row FROM gpu_samples ORDER BY 4, 1")
    assert found == [("0", 300, 0.5, 1), ("1", 310, None, 1), ("1", 320, None, 2)]


@pytest.mark.parametrize(
    ("time", "cells", "seconds"),
    [
        ('[time]\nmode = "elapsed"\nunit = "ms"\n', ("0", "1500.5", "x", "3000"), (0, 1.5005, 3)),
        ('[time]\nmode = "interval"\nunit = "min"\n', ("0", "1", "1.5"), (0, 60, 150)),
    ],
)
def test_time_that_is_counted(put, time: str, cells: tuple[str, ...], seconds: tuple[float, ...]) -> None:  # type: ignore[no-untyped-def]
    toml = (
        LINK + '[columns]\nts = "t"\nbandwidth_bps = "v"\n' + ENDS + time + "start = 2026-03-01T00:00:00Z\n"
    )
    content = lines("t,v", *(f"{cell},{n + 1}e8" for n, cell in enumerate(cells)))
    sql = put({"counted.csv": content, "dataset.toml": toml.encode()})
    assert sql("SELECT ts FROM link_samples ORDER BY 1") == after(*seconds)


def test_rows_at_equal_distances(put) -> None:  # type: ignore[no-untyped-def]
    toml = LINK + 'interval_s = 20\nstart = 2026-03-01T00:00:00Z\n[columns]\nbandwidth_bps = "v"\n' + ENDS
    sql = put({"rows.csv": lines("v", "1e8", "2e8"), "dataset.toml": toml.encode()})
    assert sql("SELECT ts FROM link_samples ORDER BY 1") == after(0, 20)


def test_an_interval_that_is_no_number_leaves_later_rows_without_time(put) -> None:  # type: ignore[no-untyped-def]
    toml = LINK + 'start = 2026-03-01T00:00:00Z\n[columns]\nts = "t"\nbandwidth_bps = "v"\n' + ENDS
    toml += '[time]\nmode = "interval"\n'
    with pytest.raises(InputError, match="2 t: blank or negative; all later rows would have no time"):
        put({"counted.csv": lines("t,v", "0,1e8", ",2e8"), "dataset.toml": toml.encode()})


def test_no_year_is_invented(put) -> None:  # type: ignore[no-untyped-def]
    toml = LINK + '[columns]\nts = "t"\nbandwidth_bps = "v"\n' + ENDS + '[time]\nmode = "elapsed"\n'
    content = lines("t,v", "0,1e8", "1,2e8")
    with pytest.raises(InputError, match="no dates, and no start to count from"):
        put({"counted.csv": content, "dataset.toml": toml.encode()})
    accepted = 'accept = ["ts.undated", "ts.range"]\n' + toml
    sql = put({"counted.csv": content, "dataset.toml": accepted.encode()})
    assert sql("SELECT year(min(ts)) FROM link_samples") == [(2000,)]


def test_several_tables_out_of_one_file(put) -> None:  # type: ignore[no-untyped-def]
    document = {
        "node": "n1",
        "gpus": [{"t": 1772323200, "id": 0, "w": 300}, {"t": 1772323200, "id": 1, "w": 310}],
        "net": [{"t": 1772323200, "tx": 5e9}],
    }
    toml = '[[tables]]\ntable = "gpu_samples"\nrows = "gpus[]"\n'
    toml += 'columns = {ts = "t", gpu = "id", power_w = "w", host = ".node"}\n'
    toml += '[[tables]]\ntable = "host_samples"\nrows = "net[]"\n'
    toml += 'columns = {ts = "t", host = ".node", net_tx_bytes_s = "tx"}\n'
    sql = put({"both.json": json.dumps(document).encode(), "dataset.toml": toml.encode()})
    assert sql("SELECT host, gpu, power_w FROM gpu_samples ORDER BY 2") == [
        ("n1", "0", 300),
        ("n1", "1", 310),
    ]
    assert sql("SELECT host, net_tx_bytes_s FROM host_samples") == [("n1", 5e9)]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1.234,5", 1234.5), ("-0,5", None), ("1.5", None), ("12", 12.0), ("1.234.567", 1234567.0)],
)
def test_decimal_commas(put, cell: str, value: float | None) -> None:  # type: ignore[no-untyped-def]
    toml = 'table = "host_samples"\ndecimal = ","\ndelimiter = ";"\naccept = ["power_w.range"]\n'
    toml += '[columns]\nts = "t"\npower_w = "w"\n'
    sql = put(
        {"w.csv": lines("t;w", f"1772323200;{cell}", "1772323201;300,5"), "dataset.toml": toml.encode()}
    )
    expected = [(300.5,)] if value is None else [(value,), (300.5,)]
    assert sorted(sql("SELECT power_w FROM host_samples")) == sorted(expected)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('decimel = ","', "decimel: unknown key; did you mean 'decimal'?"),
        ('[time]\nmood = "elapsed"', "time.mood: unknown key; did you mean 'mode'?"),
        ('[time]\nmode = "since"', 'time.mode: \'since\' is not "elapsed" or "interval"'),
        ('[melt]\ncolumns = "("', "no regular expression"),
        ('[melt]\ncolumns = "(?P<scr>x)"', "did you mean 'src'?"),
        ('accept = ["util.constent"]', "did you mean 'constant'?"),
        ('[[tables]]\ntable = "link_sample"', "did you mean 'link_samples'?"),
        ('table = "link_samples"\nrows = "a..b"', "cannot be read at"),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest(put, toml: str, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=re.escape(said)):
        put({"a.json": b"[{}]", "dataset.toml": toml.encode()})


def test_paths_from_the_top_and_from_the_row() -> None:
    way = steps('sites[]."a.b".*')
    (row,) = rows({"day": 3, "sites": [{"name": "x", "a.b": {"k": {"v": [7]}}}]}, way)
    paths = (".day", ".sites[].name", ".sites[]@", "@", "v[0]", "v.1", ".sites[2]")
    found = [JsonColumn(path, way).value(row) for path in paths]
    assert found == [3, "x", 0, "k", 7, MISSING, MISSING]
