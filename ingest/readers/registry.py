"""The readers, and which of them a file belongs to."""

from pathlib import PurePath

from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import UsageError
from ingest.parsing.reader import Reader
from ingest.readers.profiles.aceso_collectives import AcesoCollectives
from ingest.readers.profiles.aceso_ops import AcesoOps
from ingest.readers.training.aceso_results import AcesoResults
from ingest.readers.links.ripe_atlas import Atlas
from ingest.readers.columns import Columns
from ingest.readers.clusters.curve_pickle import CurvePickle
from ingest.readers.telemetry.dcgm_long import DcgmLong
from ingest.readers.telemetry.dcgm_wide import DcgmWide
from ingest.readers.links.esmond import Esmond
from ingest.readers.links.fping import Fping
from ingest.readers.profiles.galvatron import Galvatron
from ingest.readers.training.gavel import Gavel
from ingest.readers.clusters.gpu_capacity import GpuCapacity
from ingest.readers.links.intercloud import Intercloud
from ingest.readers.links.iperf3 import Iperf3
from ingest.readers.links.labelled_rtt import LabelledRtt
from ingest.readers.links.latency_slices import LatencySlices
from ingest.readers.links.latency_tables import LatencyTables
from ingest.readers.training.megatron_golden import MegatronGolden
from ingest.readers.profiles.metis_profile import MetisProfile
from ingest.readers.training.mini_batch import MiniBatch
from ingest.readers.telemetry.mllog import MlLog
from ingest.readers.profiles.nccl_tests import NcclTests
from ingest.readers.clusters.node_faults import NodeFaults
from ingest.readers.telemetry.nvidia_smi import NvidiaSmi
from ingest.readers.clusters.openb import Openb
from ingest.readers.profiles.perseus import Perseus
from ingest.readers.clusters.philly import Philly
from ingest.readers.links.ping import Ping
from ingest.readers.telemetry.pod_series import PodSeries
from ingest.readers.telemetry.prometheus_json import PrometheusJson
from ingest.readers.telemetry.prometheus_text import PrometheusText
from ingest.readers.links.region_pairs import RegionPairs
from ingest.readers.links.rtt_matrix import RttMatrix
from ingest.readers.profiles.sailor_profile import SailorProfile
from ingest.readers.clusters.spot_availability import SpotAvailability
from ingest.readers.clusters.swf import Swf
from ingest.readers.links.topology import Topology
from ingest.readers.links.traffic_matrices import TrafficMatrices
from ingest.readers.links.traffic_prices import TrafficPrices
from ingest.readers.training.training_trace import TrainingTrace
from ingest.readers.profiles.vidur import Vidur
from ingest.readers.links.wanify import Wanify
from ingest.lake.schema import SITES, TABLES

READERS: tuple[Reader, ...] = (
    AcesoCollectives(),
    AcesoOps(),
    AcesoResults(),
    Atlas(),
    Columns(),
    CurvePickle(),
    DcgmLong(),
    DcgmWide(),
    Esmond(),
    Fping(),
    Galvatron(),
    Gavel(),
    GpuCapacity(),
    Intercloud(),
    Iperf3(),
    LabelledRtt(),
    LatencySlices(),
    LatencyTables(),
    MegatronGolden(),
    MetisProfile(),
    MiniBatch(),
    MlLog(),
    NcclTests(),
    NodeFaults(),
    NvidiaSmi(),
    Openb(),
    Perseus(),
    Philly(),
    Ping(),
    PodSeries(),
    PrometheusJson(),
    PrometheusText(),
    RegionPairs(),
    RttMatrix(),
    SailorProfile(),
    SpotAvailability(),
    Swf(),
    Topology(),
    TrafficMatrices(),
    TrafficPrices(),
    TrainingTrace(),
    Vidur(),
    Wanify(),
)


def by_name(name: str) -> Reader:
    """The reader of this name.

    Raises:
        UsageError: there is none; names those that exist.
    """
    for reader in READERS:
        if reader.name == name:
            return reader
    known = ", ".join(sorted(reader.name for reader in READERS))
    raise UsageError(f"no reader is called {name!r}; readers: {known}")


def find(path: PurePath, head: bytes, options: DatasetOptions) -> tuple[Reader | None, str]:
    """The one reader of a file, or None and the reason: nothing is guessed."""
    why_not = options.left_out(str(path))
    if why_not is not None:
        return None, why_not
    stated = options.reader or (Columns.name if options.table or options.columns else None)
    if stated is not None:
        return _with(by_name(stated), options)
    if not head:
        return None, "empty file"
    claims = [reader for reader in READERS if reader.can_read(path, head)]
    if len(claims) == 1:
        return _with(claims[0], options)
    if not claims:
        return None, "no reader knows this format; describe it in dataset.toml, see docs/own-data.md"
    names = ", ".join(reader.name for reader in claims)
    return None, f"several readers claim it ({names}); name one in dataset.toml"


def _with(reader: Reader, options: DatasetOptions) -> tuple[Reader | None, str]:
    """The reader, unless dataset.toml says something that it would not heed."""
    unheeded = _unheeded(reader, options)
    if not unheeded:
        return reader, ""
    return None, (
        f"reader {reader.name} does not use {', '.join(unheeded)} of dataset.toml; take it out, "
        "or give files that need it a folder and a dataset.toml of their own"
    )


def _unheeded(reader: Reader, options: DatasetOptions) -> list[str]:
    """What dataset.toml says and a reader does not use, of that which only some readers use."""
    heeded = getattr(reader, "settings", ())
    names = [name for name in ("table", "columns", "units") if getattr(options, name)]
    unheeded = [name if name == "table" else f"[{name}]" for name in names if name not in heeded]
    if "values" not in heeded:
        unheeded += [f"[values] {name}" for name in options.values if f"values.{name}" not in heeded]
    if options.sites and not any(name in SITES for table in reader.tables for name in TABLES[table].names):
        unheeded.append("[sites]")
    return unheeded
