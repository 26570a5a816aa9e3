"""Operator profiles of Aceso: `<model>_mbs<B>_tp<T>_algo<A>.csv`, one row for an operator of one layer.

Times are in microseconds, sizes in MiB (the profiler divides by 1024 x 1024). `algo` is the way an operator
is split over the tensor-parallel ranks; it goes to `variant`. The collectives of tensor parallelism are not
in the times.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.parsing import cell_conversion as cells, csv_blocks as csvfile
from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import InputError
from ingest.parsing.reader import Batch
from ingest.parsing.row_builder import folder
from ingest.parsing.source import Source
from ingest.core.units import MIB, US

_TABLE = "layer_profiles"
_NAME = re.compile(r"(.{1,80})_mbs(\d{1,6})_tp(\d{1,4})_algo(\d{1,3})\.csv")
_NEEDED = {"op_name", "forward-compute", "backward-compute", "weights", "activations"}
_COLUMNS = (
    cells.text("layer", "op_name"),
    cells.number("forward_s", "forward-compute", US),
    cells.number("backward_s", "backward-compute", US),
    cells.whole("param_bytes", "weights", MIB),
    cells.whole("activation_bytes", "activations", MIB),
)


class AcesoOps:
    """Operators of a transformer layer, embedding and head."""

    name = "aceso-ops"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The name tells the setting, the header the measures."""
        return bool(_NAME.fullmatch(path.name)) and set(csvfile.header(head)) >= _NEEDED

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each operator."""
        names, named = csvfile.header(source.head), _NAME.fullmatch(source.path.name)
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
        yield from csvfile.side_by_side(source, cells.Typed(_TABLE, names, _COLUMNS, stated))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Units, and where the GPU stands."""
        return (
            "aceso-ops: sizes are MiB; the GPU is gpu_model of dataset.toml, else the folder of the file",
            "aceso-ops: one transformer layer with embedding and head; tp collectives are not in the times",
        )
