"""CSV with one row for a pair of cloud regions: throughput grids and RTT grids as Skyplane publishes them.

`throughput_received` (one release spells it `throughput_recieved`) is b/s over `iperf3_connections`;
`avg_rtt` is ms. A GCP pair can have up to four rows, one for each network tier at either end: the standard
tier is a domain of its own, `<region>/standard`. One value a pair: a grid, not a series.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import MS, to_ns
from ingest.lake.schema import TS
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "link_samples"
_RATES = ("throughput_received", "throughput_recieved")
_DATED = r"(?P<date>20\d\d\.[01]\d\.[0-3]\d_[0-2]\d\.[0-5]\d)_"
"""Folder of the measuring machine's log: the only date in the file, with a resolution of minutes."""
_DIGITS = r"^(\d+)\.(\d+)\.(\d+)_(\d+)\.(\d+)$"


def _succeeded(cell: str) -> bool:
    if cell.strip().lower() not in ("true", "1"):
        raise ValueError(cell)
    return True


def _all_succeeded(column: pa.Array) -> pa.Array:
    if not pc.all(pc.equal(column, "True")).as_py():
        raise pa.ArrowInvalid("some measurements failed")
    return pa.repeat(True, len(column))


_SUCCESS = ColumnMapping(
    "_success", "success", pa.string(), _all_succeeded, _succeeded, pa.bool_(), "the measurement failed"
)


class RegionPairs:
    """Skyplane's throughput and latency grids."""

    name = "region-pairs"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header names two regions and a throughput or an RTT."""
        return _fits(csv_blocks.header(head))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each pair and tier."""
        names = csv_blocks.header(source.head)
        if not _fits(names):
            raise InputError(
                f"{source.shown}: the header must name both regions and what is measured, once each"
            )
        columns, constants = _columns(names, options)

        def made(block: csv_blocks.Block) -> RowBatch:
            return cell_conversion.from_texts(
                _TABLE, _with_ends(csv_blocks.texts(block, names), options), columns, constants
            )

        yield from csv_blocks.side_by_side(source, made)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "region-pairs: throughput is dated by the name of its log folder (UTC), rows without one "
            f"to {options.start_or_default().isoformat()}",
            "region-pairs: the standard network tier of a region is a domain of its own, <region>/standard",
        )


def _fits(names: list[str]) -> bool:
    given = set(names)
    measured = given & {*_RATES, "avg_rtt"}
    return {"src_region", "dst_region"} <= given and bool(measured) and len(given) == len(names)


def _with_ends(texts: Texts, options: DatasetOptions) -> Texts:
    """Region and tier joined to `src` and `dst`."""
    made = dict(texts.columns)
    for end in ("src", "dst"):
        region, tier = made[f"{end}_region"], made.get(f"{end}_tier")
        if tier is None:
            made[end] = region
        else:
            standard = pc.fill_null(pc.equal(pc.utf8_upper(tier), "STANDARD"), False)
            made[end] = pc.if_else(standard, pc.binary_join_element_wise(region, "standard", "/"), region)
    if "stdout_path" in made:
        found = pc.extract_regex(made["stdout_path"], _DATED).field("date")
        dated = pc.replace_substring_regex(found, _DIGITS, r"\1-\2-\3T\4:\5:00Z")
        made["_date"] = pc.fill_null(dated, options.start_or_default().isoformat())
    return Texts(made, texts.rows, texts.rows_in, texts.rejects)


def _columns(names: list[str], options: DatasetOptions) -> tuple[list[ColumnMapping], dict[str, object]]:
    columns = [cell_conversion.text("src", "src"), cell_conversion.text("dst", "dst")]
    constants: dict[str, object] = {}
    rate = next((name for name in _RATES if name in names), None)
    if rate is not None:
        columns.append(cell_conversion.number("bandwidth_bps", rate))
        constants["kind"] = options.kind or "tcp"
    else:
        constants["kind"] = "ping"
    if "avg_rtt" in names:
        columns.append(cell_conversion.number("rtt_s", "avg_rtt", MS))  # ms
    if "iperf3_connections" in names:
        columns.append(cell_conversion.whole("streams", "iperf3_connections"))
    if "iperf3_runtime" in names:
        columns.append(cell_conversion.number("duration_s", "iperf3_runtime"))  # s
    if "success" in names:
        columns.append(_SUCCESS)
    if "stdout_path" in names:
        columns.append(cell_conversion.instant("ts", "_date"))
    else:
        constants["ts"] = pa.scalar(to_ns(options.start_or_default().timestamp()), TS)
    return columns, constants
