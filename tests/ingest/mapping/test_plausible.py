"""A wrong mapping is refused with the column at fault, and taken where `accept` says that it is meant."""

import pytest

from ingest.core.errors import InputError
from tests.support.kit import lines

TOML = 'table = "link_samples"\n[columns]\nts = "t"\nbandwidth_bps = "v"\n[values]\nsrc = "a"\ndst = "b"\n'
GOOD = [f"{1772323200 + n},{n + 1}e8" for n in range(8)]


def refused(put, rows: list[str], said: str, toml: str = TOML, header: str = "t,v") -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        put({"a.csv": lines(header, *rows), "dataset.toml": toml.encode()})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1104537599,1e8", "a time before 2005"),
        ("4102444800,1e8", "a time after tomorrow"),
        ("1772323200,1e15", "above 1e+13"),
    ],
)
def test_a_row_that_cannot_be_is_rejected_and_can_be_accepted(put, row: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({"a.csv": lines("t,v", *GOOD, row), "dataset.toml": TOML.encode()})
    ((why, number),) = sql("SELECT reason, source_row FROM rejects")
    assert reason in why and "accept" in why and number == 9
    accepted = 'accept = ["ts.range", "bandwidth_bps.range"]\n' + TOML
    sql = put({"a.csv": lines("t,v", *GOOD, row), "dataset.toml": accepted.encode()})
    assert sql("SELECT count(*) FROM link_samples") == [(9,)]


def test_a_column_of_the_wrong_unit_refuses_the_file(put) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{1772323200 + n},{n + 1}.5" for n in range(3)]
    refused(put, rows, "3 of 3 values of bandwidth_bps are not believed (row 1, '1.5': below 1000)")


def test_a_constant_measurement_refuses_the_file(put) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{1772323200 + n},5e8" for n in range(8)]
    refused(put, rows, "bandwidth_bps is 500000000.0 in all 8 rows")
    accepted = 'accept = ["bandwidth_bps.constant"]\n' + TOML
    sql = put({"a.csv": lines("t,v", *rows), "dataset.toml": accepted.encode()})
    assert sql("SELECT count(*) FROM link_samples") == [(8,)]


def test_one_instant_for_a_whole_series_refuses_the_file(put) -> None:  # type: ignore[no-untyped-def]
    refused(put, [f"1772323200,{n + 1}e8" for n in range(8)], "ts is 1772323200000000000 in all 8 rows")


def test_a_delay_of_one_direction_is_no_round_trip(put) -> None:  # type: ignore[no-untyped-def]
    toml = TOML.replace('bandwidth_bps = "v"', 'rtt_s = "owd_ms"') + '[units]\nrtt_s = "ms"\n'
    rows = [f"{1772323200 + n},{n + 1}" for n in range(8)]
    refused(put, rows, "map it to one_way_s", toml, "t,owd_ms")
    sql = put(
        {"a.csv": lines("t,owd_ms", *rows), "dataset.toml": toml.replace("rtt_s", "one_way_s").encode()}
    )
    assert sql("SELECT max(one_way_s), count(rtt_s) FROM link_samples") == [(0.008, 0)]


def test_one_column_is_not_two(put) -> None:  # type: ignore[no-untyped-def]
    toml = TOML.replace("[values]", 'loss = "v"\n[values]')
    refused(put, GOOD, "column 'v' is mapped to both bandwidth_bps and loss", toml)


def test_numbers_are_no_names_of_sites(put) -> None:  # type: ignore[no-untyped-def]
    toml = TOML.replace('dst = "b"\n', "").replace("[values]", 'dst = "x"\n[values]')
    refused(
        put,
        [f"{row},{n}.25" for n, row in enumerate(GOOD)],
        "dst is a name, and its values are numbers",
        toml,
        "t,v,x",
    )


def test_an_end_before_its_start_is_rejected(put) -> None:  # type: ignore[no-untyped-def]
    toml = 'table = "jobs"\n[columns]\njob_id = "id"\nsubmit_ts = "s"\nend_ts = "e"\nstart_ts = "b"\n'
    rows = (
        "a,1772323200,1772323300,1772323400",
        "b,1772323200,1772323300,1772323250",
        "c,1772323200,1772323201,1772323400",
    )
    sql = put({"a.csv": lines("id,s,b,e", *rows), "dataset.toml": toml.encode()})
    assert sql("SELECT job_id FROM jobs ORDER BY 1") == [("a",), ("c",)]
    assert sql('SELECT source_row, "column" FROM rejects') == [(2, "end_ts")]
