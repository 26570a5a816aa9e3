"""Files as strangers bring them: read, or refused in at most 15 lines with a mapping to start from."""

import json
from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.pipeline.explain import explain
from ingest.pipeline.ingest import ingest
from tests.support.kit import lines

CSV = lines(
    "# exported",
    "when;peer;throughput_mbps;ping_ms",
    "1772323200123;berlin;812.5;11",
    "1772323260123;madrid;650;24",
)
SERIES = {
    "data": [{"from": "a", "to": "b", "points": [{"ts": 1772323200 + n, "rtt_ms": n + 3} for n in range(3)]}]
}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "set"


def test_explain_gives_a_mapping_that_reads_the_file(tmp_path: Path) -> None:
    folder = put(tmp_path, {"links.csv": CSV})
    found = explain(folder / "links.csv")
    assert found.looks.startswith("a CSV by semicolons, 1 line above its header with columns when, peer")
    assert found.reader is None and found.table == "link_samples" and len(found.rows) == 2
    assert found.rows[0] | {"ts": ""} == {
        "source_row": 1, "ts": "", "src": "SITE", "dst": "berlin", "bandwidth_bps": 812.5e6, "rtt_s": 0.011,
    }  # fmt: skip
    (folder / "dataset.toml").write_text("\n".join(found.draft))
    assert ingest([folder], tmp_path / "store").rows == {"link_samples": 2}


def test_explain_finds_the_rows_inside_a_document(tmp_path: Path) -> None:
    found = explain(put(tmp_path, {"s.json": json.dumps(SERIES).encode()}) / "s.json")
    assert 'rows = "data[].points[]"' in found.draft
    assert [(row["src"], row["dst"], row["rtt_s"]) for row in found.rows] == [
        ("a", "b", pytest.approx(n / 1000)) for n in (3, 4, 5)
    ]


def test_explain_of_a_known_format_shows_its_reader_and_rows(tmp_path: Path) -> None:
    content = lines("ts,src,dst,bandwidth_bps", *(f"2026-03-01T00:0{n}:00Z,a,b,{n}e8" for n in range(7)))
    found = explain(put(tmp_path, {"own.csv": content}) / "own.csv")
    assert (found.reader, len(found.rows), found.draft) == ("columns", 5, ())


def test_explain_wants_one_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a file"):
        explain(tmp_path)


def test_a_thousand_files_are_refused_in_fifteen_lines(tmp_path: Path) -> None:
    files = {f"{n}.csv": CSV + b"1772323261123;x;1;1\n" * n for n in range(400)}
    files |= {f"{n}.json": json.dumps(SERIES | {"n": n}).encode() for n in range(400)}
    files |= {f"{n}.txt": b"Dear all,\nnothing here\n" for n in range(100)}
    files |= {f"{n}.bin": bytes([0, 1, 2, n]) for n in range(100)}
    with pytest.raises(InputError) as caught:
        ingest([put(tmp_path, files)], tmp_path / "store")
    said = str(caught.value).splitlines()
    assert len(said) <= 15
    assert "and 399 more files like it" in said[1]
    assert 'columns = {ts = "when"' in str(caught.value)


def test_a_refusal_names_the_nearest_format_and_what_it_lacks(tmp_path: Path) -> None:
    content = lines("timestamp,gpu,gpu_model,power_w,fan", "1772323200,0,H100,300.1,7")
    with pytest.raises(
        InputError, match="nearest is dcgm-wide, which also has temp_c, gpu_util_pct, sm_active"
    ):
        ingest([put(tmp_path, {"gpus.csv": content})], tmp_path / "store")
