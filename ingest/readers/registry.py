"""The readers, shipped and of plugins, and which of them a file belongs to.

An installed distribution adds a reader by an entry point of group `twin.readers` that names a class with the
contract of `ingest.parsing.reader`, under the name the class has as a reader.
"""

from functools import cache
from pathlib import PurePath
from typing import Any

from ingest.core import plugins
from ingest.core.errors import UsageError
from ingest.core.names import checked
from ingest.lake.schema import SITES, TABLES
from ingest.mapping.nearest import nearest
from ingest.mapping.sniffing import look
from ingest.mapping.text_rows import is_json
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reader
from ingest.readers.clusters.curve_pickle import CurvePickle
from ingest.readers.clusters.gavel_trace import GavelTrace
from ingest.readers.clusters.gpu_capacity import GpuCapacity
from ingest.readers.clusters.job_lists import JobLists
from ingest.readers.clusters.job_tables import JobTables
from ingest.readers.clusters.node_faults import NodeFaults
from ingest.readers.clusters.openb import Openb
from ingest.readers.clusters.philly import Philly
from ingest.readers.clusters.slurm import Slurm
from ingest.readers.clusters.spot_availability import SpotAvailability
from ingest.readers.clusters.swf import Swf
from ingest.readers.columns import Columns
from ingest.readers.energy.electricity_maps import ElectricityMaps
from ingest.readers.energy.market_prices import MarketPrices
from ingest.readers.energy.opendt_carbon import OpendtCarbon
from ingest.readers.energy.opendt_power import OpendtPower
from ingest.readers.energy.opendt_tasks import OpendtTasks
from ingest.readers.links.esmond import Esmond
from ingest.readers.links.fping import Fping
from ingest.readers.links.intercloud import Intercloud
from ingest.readers.links.iperf3 import Iperf3
from ingest.readers.links.labelled_rtt import LabelledRtt
from ingest.readers.links.latency_slices import LatencySlices
from ingest.readers.links.latency_tables import LatencyTables
from ingest.readers.links.owamp import Owamp
from ingest.readers.links.ping import Ping
from ingest.readers.links.pscheduler import PScheduler
from ingest.readers.links.region_pairs import RegionPairs
from ingest.readers.links.ripe_atlas import RipeAtlas
from ingest.readers.links.rtt_matrix import RttMatrix
from ingest.readers.links.topology import Topology
from ingest.readers.links.traffic_matrices import TrafficMatrices
from ingest.readers.links.traffic_prices import TrafficPrices
from ingest.readers.links.wanify import Wanify
from ingest.readers.profiles.aceso_collectives import AcesoCollectives
from ingest.readers.profiles.aceso_ops import AcesoOps
from ingest.readers.profiles.elasticflow import ElasticFlow
from ingest.readers.profiles.galvatron import Galvatron
from ingest.readers.profiles.lucid import Lucid
from ingest.readers.profiles.metis_profile import MetisProfile
from ingest.readers.profiles.nccl_tests import NcclTests
from ingest.readers.profiles.perseus import Perseus
from ingest.readers.profiles.pollux import Pollux
from ingest.readers.profiles.sailor_profile import SailorProfile
from ingest.readers.profiles.vidur import Vidur
from ingest.readers.telemetry.dcgm_long import DcgmLong
from ingest.readers.telemetry.dcgm_wide import DcgmWide
from ingest.readers.telemetry.dmon import Dmon
from ingest.readers.telemetry.mllog import MlLog
from ingest.readers.telemetry.nvidia_smi import NvidiaSmi
from ingest.readers.telemetry.pod_series import PodSeries
from ingest.readers.telemetry.prometheus_json import PrometheusJson
from ingest.readers.telemetry.prometheus_text import PrometheusText
from ingest.readers.training.aceso_results import AcesoResults
from ingest.readers.training.chakra import Chakra
from ingest.readers.training.gavel import Gavel
from ingest.readers.training.kineto import Kineto
from ingest.readers.training.megatron_golden import MegatronGolden
from ingest.readers.training.mini_batch import MiniBatch
from ingest.readers.training.nsys_stats import NsysStats
from ingest.readers.training.scalars import Scalars
from ingest.readers.training.tensorboard import TensorBoard
from ingest.readers.training.training_trace import TrainingTrace

READERS: tuple[Reader, ...] = (
    AcesoCollectives(),
    AcesoOps(),
    AcesoResults(),
    RipeAtlas(),
    Chakra(),
    Columns(),
    CurvePickle(),
    DcgmLong(),
    DcgmWide(),
    Dmon(),
    ElasticFlow(),
    ElectricityMaps(),
    Esmond(),
    Fping(),
    Galvatron(),
    Gavel(),
    GavelTrace(),
    GpuCapacity(),
    Intercloud(),
    Iperf3(),
    JobLists(),
    JobTables(),
    Kineto(),
    LabelledRtt(),
    LatencySlices(),
    LatencyTables(),
    Lucid(),
    MarketPrices(),
    MegatronGolden(),
    MetisProfile(),
    MiniBatch(),
    MlLog(),
    NcclTests(),
    NodeFaults(),
    NsysStats(),
    NvidiaSmi(),
    Openb(),
    OpendtCarbon(),
    OpendtPower(),
    OpendtTasks(),
    Owamp(),
    Perseus(),
    Philly(),
    PScheduler(),
    Ping(),
    PodSeries(),
    Pollux(),
    PrometheusJson(),
    PrometheusText(),
    RegionPairs(),
    RttMatrix(),
    SailorProfile(),
    Scalars(),
    Slurm(),
    SpotAvailability(),
    Swf(),
    TensorBoard(),
    Topology(),
    TrafficMatrices(),
    TrafficPrices(),
    TrainingTrace(),
    Vidur(),
    Wanify(),
)


UNKNOWN = "no reader knows this format"
"""Beginning of the reason for files that nobody claims."""
PLUGINS = "twin.readers"
"""Group of the entry points that name readers of other distributions."""


_registered: dict[str, Reader] = {}


def register(reader: Reader) -> None:
    """Makes a reader known in this process; one registered before under its name is replaced.

    Raises:
        UsageError: the name is no name, or that of a shipped reader or plugin; or the object is not a reader.
    """
    try:
        _checked(reader.name, reader)
    except (AttributeError, ValueError) as error:
        raise UsageError(f"{reader!r} is not a reader: {error}") from error
    checked(reader.name, "reader name")
    if reader.name in {known.name for known in READERS + _plugins()[0]}:
        raise UsageError(f"reader name {reader.name!r} is taken: choose another")
    _registered[reader.name] = reader


def readers() -> tuple[Reader, ...]:
    """Returns the shipped readers, then those of plugins and those registered in this process."""
    return (*READERS, *_plugins()[0], *_registered.values())


def plugin_problems() -> tuple[str, ...]:
    """Returns one sentence for each plugin that is left out: its name, its distribution and the reason."""
    return _plugins()[1]


def by_name(name: str) -> Reader:
    """Returns the reader of this name.

    Raises:
        UsageError: there is none; names those that exist.
    """
    for reader in readers():
        if reader.name == name:
            return reader
    known = ", ".join(sorted(reader.name for reader in readers()))
    raise UsageError(f"no reader is called {name!r}; readers: {known}")


def find(path: PurePath, head: bytes, options: DatasetOptions) -> tuple[Reader | None, str]:
    """Returns the one reader of a file, or None and the reason: nothing is guessed."""
    why_not = options.left_out(str(path))
    if why_not is not None:
        return None, why_not
    stated = options.reader or (Columns.name if options.maps else None)
    if stated is not None:
        return _with(by_name(stated), options)
    if not head:
        return None, "empty file"
    asked = _of_json() if is_json(head) else READERS
    claims = [
        reader for reader in (*asked, *_plugins()[0], *_registered.values()) if reader.can_read(path, head)
    ]
    if len(claims) == 1:
        return _with(claims[0], options)
    if not claims:
        return None, _described(head)
    names = ", ".join(reader.name for reader in claims)
    return None, f"several readers claim it ({names}); name one in dataset.toml"


@cache
def _of_json() -> tuple[Reader, ...]:
    """The shipped readers that may read a file which begins as JSON does."""
    return tuple(reader for reader in READERS if not getattr(reader, "text_only", False))


def _described(head: bytes) -> str:
    """What a file of no known format is, and what to do."""
    seen = look(head)
    near = nearest(seen)
    way = "describe it in dataset.toml, see docs/guides/own-data.md" if seen.names else "take it out"
    return f"{UNKNOWN}: {seen.sentence()}{f'; {near}' if near else ''}; {way}"


@cache
def _plugins() -> tuple[tuple[Reader, ...], tuple[str, ...]]:
    """Readers of plugins, and what is wrong with the others; imported at the first call."""
    found, problems = plugins.load(PLUGINS, {reader.name for reader in READERS}, _reader)
    return tuple(found.values()), tuple(problems)


def _reader(name: str, found: Any) -> Reader:
    """The reader of the class that a plugin names."""
    return _checked(name, found())


def _checked(name: str, reader: Reader) -> Reader:
    """The reader itself.

    Raises:
        ValueError: it does not have the contract of a reader.
    """
    if reader.name != name:
        raise ValueError(f"the reader is called {reader.name!r}; its entry point must have that name")
    unknown = [table for table in reader.tables if table not in TABLES]
    if unknown:
        raise ValueError(f"it fills table {unknown[0]!r}, which the lake does not have")
    if not isinstance(reader.version, int):
        raise ValueError(f"its version {reader.version!r} is no whole number")
    for method in ("can_read", "read", "assumptions"):
        if not callable(getattr(reader, method)):
            raise ValueError(f"its {method} is no method")
    return reader


def _with(reader: Reader, options: DatasetOptions) -> tuple[Reader | None, str]:
    """The reader, or None and the reason if dataset.toml states something that it would ignore."""
    ignored = _ignored_options(reader, options)
    if not ignored:
        return reader, ""
    return None, (
        f"reader {reader.name} does not use {', '.join(ignored)} of dataset.toml; take it out, "
        "or give files that need it a folder and a dataset.toml of their own"
    )


def _ignored_options(reader: Reader, options: DatasetOptions) -> list[str]:
    """Stated keys that only some readers use, and this one does not."""
    used = getattr(reader, "settings", ())
    names = [name for name in ("table", "columns", "units") if getattr(options, name)]
    ignored = [name if name == "table" else f"[{name}]" for name in names if name not in used]
    if "values" not in used:
        ignored += [f"[values] {name}" for name in options.values if f"values.{name}" not in used]
    if options.sites and not any(name in SITES for table in reader.tables for name in TABLES[table].names):
        ignored.append("[sites]")
    return ignored
