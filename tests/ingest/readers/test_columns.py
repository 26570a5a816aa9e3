"""The generic reader: what `dataset.toml` says of columns, units and kinds, and what it refuses."""

import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.core.errors import InputError
from tests.support.formats import RUN, iperf_bytes, lines


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[values]\nsrc = "a"\nkind = "tcp"', "iperf3 does not use [values] kind of"),
        ('[units]\nrtt_s = "ms"', "iperf3 does not use [units] of"),
        (
            'reader = "iperf3"\ntable = "link_samples"\n[columns]\nts = "t"',
            "iperf3 does not use table, [columns] of",
        ),
        ('reader = "nccl-tests"\n[sites]\na = "b"', "nccl-tests does not use [sites] of"),
    ],
)
def test_what_a_reader_does_not_use_is_refused_by_name(put, toml: str, named: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        put({RUN: iperf_bytes(), "dataset.toml": toml.encode()})
    assert f"reader {named} dataset.toml" in str(caught.value)


@pytest.mark.parametrize("toml", ['table = "link_samples"\n', ""])
def test_a_table_or_columns_imply_the_reader(put, toml: str) -> None:  # type: ignore[no-untyped-def]
    held = pa.table({"t": ["2024-01-01T00:00:00Z"], "src": ["a"], "dst": ["b"], "bandwidth_bps": [1e6]})
    parquet, csv = (
        io.BytesIO(),
        lines("t,src,dst,bandwidth_bps,kind,loss", "2024-01-01T00:00:01Z,a,b,1e6,tcp,0"),
    )
    pq.write_table(held, parquet)
    columns = f'{toml}[columns]\nts = "t"\n'.encode()
    files = {"a.csv": csv} | ({"b.parquet": parquet.getvalue()} if toml else {})
    sql = put({**files, "dataset.toml": columns})
    assert sql("SELECT source_file FROM link_samples ORDER BY 1") == [(name,) for name in files]


def test_columns_with_mapping_units_and_epoch(put) -> None:  # type: ignore[no-untyped-def]
    toml = b"""table = "link_samples"
streams = 8
kind = "tcp"
[columns]
ts = "when"
src = "from"
dst = "to"
bandwidth_bps = "mbps"
[units]
ts = "ms"
bandwidth_bps = "Mb/s"
rtt_s = "ms"
[sites]
A = "alpha"
"""
    text = lines("from,to,when,mbps,rtt_s,remark", "A,B,1704067200123,93.5,12,x")
    sql = put({"measured.csv": text, "dataset.toml": b'reader = "columns"\n' + toml})
    columns = "ts, src, dst, bandwidth_bps, rtt_s, streams, kind"
    assert sql(f"SELECT {columns} FROM link_samples") == [
        (datetime(2024, 1, 1, 0, 0, 0, 123000), "alpha", "B", 93.5e6, pytest.approx(0.012), 8, "tcp")
    ]


def test_columns_in_seconds_since_1970_keep_their_digits(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,rtt_s", "1775333003.425713,a,b,1", "1775333004,a,b,1")})
    assert sql("SELECT epoch_ns(ts) FROM link_samples ORDER BY 1") == [
        (1775333003425713000,),
        (1775333004000000000,),
    ]


def test_columns_keep_nanoseconds_beside_a_bad_neighbour(put) -> None:  # type: ignore[no-untyped-def]
    rows = lines("ts,src,dst,rtt_s", "2024-01-01T00:00:00.123456789Z,a,b,1", "never,a,b,1")
    sql = put({"l.csv": rows})
    assert sql("SELECT epoch_ns(ts) % 1000000000 FROM link_samples") == [(123456789,)]
    assert sql('SELECT source_row, "column", raw FROM rejects') == [(2, "ts", "never")]


def test_parquet_means_the_same_as_csv(put) -> None:  # type: ignore[no-untyped-def]

    held = io.BytesIO()
    moment = pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table(
            {
                "ts": moment,
                "src": ["a"] * 3,
                "dst": ["b"] * 3,
                "bandwidth_bps": [1e8, -1.0, None],
                "rtt_s": [0.1] * 3,
            }
        ),
        held,
    )
    toml = b'reader = "columns"\ntable = "link_samples"\n'
    sql = put({"l.parquet": held.getvalue(), "dataset.toml": toml})
    assert sql("SELECT ts, bandwidth_bps FROM link_samples ORDER BY source_row") == [
        (datetime(2024, 1, 1), 1e8),
        (datetime(2024, 1, 1), None),
    ]
    assert sql("SELECT source_row, raw, reason FROM rejects") == [(2, "-1", "negative")]


def test_a_reject_quotes_the_cell_as_it_stands(put) -> None:  # type: ignore[no-untyped-def]
    toml = b'reader = "columns"\ntable = "link_samples"\n[units]\nbandwidth_bps = "Gb/s"\n'
    rows = lines("ts,src,dst,bandwidth_bps", "2024-01-01T00:00:00Z,a,b,-2.50", "2024-01-01T00:00:00Z,a,b,1")
    sql = put({"l.csv": rows, "dataset.toml": toml})
    assert sql('SELECT source_file, source_row, "column", raw, reason FROM rejects') == [
        ("l.csv", 1, "bandwidth_bps", "-2.50", "negative")
    ]


def test_columns_with_other_delimiters_and_values_for_all_rows(put) -> None:  # type: ignore[no-untyped-def]
    toml = b"""reader = "columns"
table = "link_samples"
delimiter = ";"
[columns]
ts = "when"
rtt_s = "ping"
[units]
rtt_s = "ms"
[values]
src = "paris"
dst = "oslo"
loss = 0
streams = 4
"""
    sql = put(
        {
            "l.csv": lines(
                "when;ping;note", '2024-01-01T00:00:00Z;12,5;"a;b"', "2024-01-01T00:00:01Z;12.5;x"
            ),
            "dataset.toml": toml,
        }
    )
    assert sql("SELECT src, dst, rtt_s, loss, streams FROM link_samples") == [
        ("paris", "oslo", pytest.approx(0.0125), 0.0, 4)
    ]
    assert sql("SELECT source_row, raw FROM rejects") == [(1, "12,5")]


@pytest.mark.parametrize("stated", ['delimiter = "ab"', "[values]\nnobody = 1", '[values]\nrtt_s = "fast"'])
def test_columns_refuses_values_that_do_not_fit(put, stated: str) -> None:  # type: ignore[no-untyped-def]
    from ingest.core.errors import UsageError

    toml = f'reader = "columns"\ntable = "link_samples"\n{stated}\n'.encode()
    with pytest.raises(UsageError, match=r"delimiter|nobody|rtt_s"):
        put({"l.csv": lines("ts,src,dst,bandwidth_bps", "2024-01-01T00:00:00Z,a,b,1"), "dataset.toml": toml})


def test_a_kind_that_no_link_sample_has_is_rejected_and_the_nearest_named(put) -> None:  # type: ignore[no-untyped-def]
    kinds = ["tcp", "available", "udp", "load", "capacity", "ping", "", "avaliable", "laod", "TCP", "x"]
    rows = [f"2024-01-01T00:00:{n:02}Z,a,b,1,{kind}" for n, kind in enumerate(kinds)]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps,kind", *rows)})
    assert sql("SELECT count(*) FROM link_samples") == [(7,)]
    assert sql("SELECT raw, reason FROM rejects WHERE \"column\" = 'kind' ORDER BY source_row") == [
        ("avaliable", "unknown; did you mean 'available'?"),
        ("laod", "unknown; did you mean 'load'?"),
        ("TCP", "unknown; did you mean 'tcp'?"),
        ("x", "unknown; known: available, capacity, load, ping, tcp, udp"),
    ]


def test_many_unknown_kinds_get_one_reason(put) -> None:  # type: ignore[no-untyped-def]
    rows = [f"2024-01-01T00:00:00Z,a,b,1,tcp{n}" for n in range(40)]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps,kind", *rows)})
    assert sql("SELECT reason, count(*) FROM rejects GROUP BY 1") == [
        ("unknown; known: available, capacity, load, ping, tcp, udp", 40)
    ]


def test_faults_have_kinds_of_their_own(put) -> None:  # type: ignore[no-untyped-def]
    sql = put(
        {
            "f.csv": lines("ts,host,kind", "2024-01-01T00:00:00Z,a,NVLink"),
            "dataset.toml": b'table = "faults"\nreader = "columns"\n',
        }
    )
    assert sql("SELECT kind FROM faults") == [("NVLink",)]


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("1772323200000", 'as milliseconds it would be: say [units] ts = "ms" in dataset.toml'),
        ("1772323200000000", 'as microseconds it would be: say [units] ts = "us" in dataset.toml'),
        ("1772323200000000000", 'as nanoseconds it would be: say [units] ts = "ns" in dataset.toml'),
        ("17723232000000000000000", "not a time (counted from 1970)"),
    ],
)
def test_the_unit_of_a_time_is_suggested(put, stamp: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", f"{stamp},a,b,1")})
    ((reason_stored,),) = sql("SELECT reason FROM rejects")
    assert reason_stored.startswith("not a time (counted from 1970)") and reason_stored.endswith(reason)


def test_the_unit_of_a_time_is_suggested_behind_a_time_in_words(put) -> None:  # type: ignore[no-untyped-def]
    rows = ["2024-01-01T00:00:00Z,a,b,1", "1772323200000,a,b,1", "then,a,b,1"]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", *rows)})
    assert [reason_stored for (reason_stored,) in sql("SELECT reason FROM rejects ORDER BY source_row")] == [
        'not a time (ISO 8601); as milliseconds it would be: say [units] ts = "ms" in dataset.toml',
        "not a time (ISO 8601)",
    ]


@pytest.mark.parametrize(
    ("cell", "unit"),
    [("800 Mb/s", "Mb/s"), ("8e2Gb/s", "Gb/s"), ("800 Mbps", "Mb/s"), ("800 MB/s", "MB/s"), ("fast", None)],
)
def test_a_unit_in_a_cell_belongs_into_dataset_toml(put, cell: str, unit: str | None) -> None:  # type: ignore[no-untyped-def]
    sql = put({"l.csv": lines("ts,src,dst,bandwidth_bps", f"2024-01-01T00:00:00Z,a,b,{cell}")})
    hint = f'; leave only the number in the cell and say [units] bandwidth_bps = "{unit}" in dataset.toml'
    assert sql("SELECT raw, reason FROM rejects") == [(cell, "not a number" + (hint if unit else ""))]
