"""Operator profiles of Aceso: `<model>_mbs<B>_tp<T>_algo<A>.csv`, one row for an operator of one layer.

Times are in microseconds, sizes in MiB (the profiler divides by 1024 x 1024). `algo` is the way an operator
is split over the tensor-parallel ranks; it goes to `variant`. The collectives of tensor parallelism are not
in the times.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import MIB, US
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import folder
from ingest.parsing.source import Source

_TABLE = "layer_profiles"
_NAME = re.compile(r"(.{1,80})_mbs(\d{1,6})_tp(\d{1,4})_algo(\d{1,3})\.csv")
_NEEDED = {"op_name", "forward-compute", "backward-compute", "weights", "activations"}
_COLUMNS = (
    cell_conversion.text("layer", "op_name"),
    cell_conversion.number("forward_s", "forward-compute", US),
    cell_conversion.number("backward_s", "backward-compute", US),
    cell_conversion.whole("param_bytes", "weights", MIB),
    cell_conversion.whole("activation_bytes", "activations", MIB),
)


class AcesoOps:
    """Operators of a transformer layer, embedding and head."""

    name = "aceso-ops"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name has the setting, the header the measures."""
        return bool(_NAME.fullmatch(path.name)) and set(csv_blocks.header(head)) >= _NEEDED

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each operator."""
        names, named = csv_blocks.header(source.head), _NAME.fullmatch(source.path.name)
        if named is None or len(set(names)) != len(names) or not set(names) >= _NEEDED:
            raise InputError(f"{source.shown}: not <model>_mbs<B>_tp<T>_algo<A>.csv with operator times")
        constants = {
            "model": named[1],
            "gpu_model": options.gpu_model or folder(source, options),
            "micro_batch": int(named[2]),
            "tp": int(named[3]),
            "variant": f"algo{named[4]}",
        }
        stated = {name: value for name, value in constants.items() if value is not None}
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed(_TABLE, names, _COLUMNS, stated))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "aceso-ops: sizes are MiB; the GPU is gpu_model of dataset.toml, else the folder of the file",
            "aceso-ops: one transformer layer with embedding and head; tp collectives are not in the times",
        )
