import gzip
from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.readers.clusters import swf_log

HEAD = "; Version: 2.2\n; MaxNodes: 16\n; MaxProcs: 64\n; Note: first\n; Note: second\n;\n"


def row(job: object = 1, submit: object = 0, run: object = 5) -> str:
    return f"{job} {submit} -1 {run} 4 -1 -1 4 9 -1 1 3 -1 -1 2 -1 -1 -1"


def written(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "log.swf"
    path.write_text(head + "\n".join(rows) + "\n")
    return path


def test_every_field_and_the_header_are_kept(tmp_path: Path) -> None:
    log = swf_log.read(written(tmp_path, row(1), row(2, 7.5)))
    assert log.header["Version"] == "2.2" and log.header["Note"] == "first"
    assert log.processors == 64
    assert log.column("submit_s").tolist() == [0, 7.5]
    assert [log.column(name)[0] for name in ("processors", "estimate_s", "user", "queue")] == [4, 9, 3, 2]
    assert log.line.tolist() == [7, 8] and log.rows_in == 2 and not log.rejects


@pytest.mark.parametrize(
    ("head", "processors"),
    [
        ("; MaxNodes: 16\n", 16),
        ("; MaxNodes: -1\n; MaxProcs: 100\n", 100),
        ("; MaxProcs: many\n", None),
        ("", None),
    ],
)
def test_the_size_of_the_machine_is_what_the_header_says(
    tmp_path: Path, head: str, processors: int | None
) -> None:
    assert swf_log.read(written(tmp_path, row(), head=head)).processors == processors


def test_a_compressed_log_reads_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, row(1), row(2, 3))
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain, log = swf_log.read(path), swf_log.read(packed)
    assert log.table.tolist() == plain.table.tolist() and log.header == plain.header


def test_rows_that_are_no_jobs_are_rejected_one_by_one(tmp_path: Path) -> None:
    rows = (row(1), "2 0 5", row(3, "soon"), row(4, "nan"), row(5, 1e300), row(1, 8), row(6))
    log = swf_log.read(written(tmp_path, *rows))
    assert log.column("job").tolist() == [1, 6] and log.line.tolist() == [7, 13] and log.rows_in == 7
    assert [(one.row, one.column, one.raw, one.reason) for one in log.rejects] == [
        (8, "job", "2 0 5", "3 fields, not 18"),
        (9, "submit_s", "soon", "not a number, or too large"),
        (10, "submit_s", "nan", "not a number, or too large"),
        (11, "submit_s", "1e+300", "not a number, or too large"),
        (12, "job", "1", "a job of that number came before"),
    ]


@pytest.mark.parametrize("text", ["", "; only a header\n", "a,b,c\n1,2,3\n"])
def test_a_file_without_jobs_is_no_log(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.swf"
    path.write_text(text)
    with pytest.raises(InputError, match="no job in the Standard Workload Format"):
        swf_log.read(path)


def test_what_is_not_one_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        swf_log.read(tmp_path / "nothing.swf")
    with pytest.raises(InputError, match="a folder"):
        swf_log.read(tmp_path)
    damaged = tmp_path / "log.swf.gz"
    damaged.write_bytes(gzip.compress(row().encode())[:-6])
    with pytest.raises(InputError):
        swf_log.read(damaged)
