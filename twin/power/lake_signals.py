"""Carbon intensities and prices of the lake, by zone or by data set."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from twin.power.signals import CARBON, PRICE, Signal, SignalKind, constant, of_samples

TABLES = {
    CARBON.name: ("carbon_intensity", "coalesce(direct_g_per_kwh, life_cycle_g_per_kwh)"),
    PRICE.name: ("electricity_prices", "usd_per_mwh"),
}
"""Table and value of each kind. An intensity is the direct one where it is known."""


def signal(store: Path, kind: SignalKind, said: str, begin: datetime | None = None) -> Signal:
    """Returns the signal that people name: a number (constant), ZONE, DATASET/ZONE, or a DATASET of one zone.

    `begin` is the instant that becomes 0, without a zone UTC; None: the first sample.

    Raises:
        NotFoundError: the lake has no such zone. UsageError: several have that name, or nothing is known at
        `begin`. InputError: the samples make no signal.
    """
    rate = _number(said)
    if rate is not None:
        return constant(kind, rate)
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    table, value = TABLES[kind.name]
    with duckdb_views.connect(store) as connection:
        known = connection.execute(f"SELECT DISTINCT dataset, zone FROM {table} ORDER BY ALL").fetchall()
        dataset, zone = _chosen(kind, said, known)
        columns = connection.execute(
            f"SELECT epoch_ns(ts) AS at, {value} AS rate FROM {table} WHERE dataset = ? AND zone = ? "
            f"AND {value} IS NOT NULL ORDER BY ts",
            [dataset, zone],
        ).fetchnumpy()
    time_ns = np.asarray(columns["at"], np.int64)
    return of_samples(kind, zone, time_ns, np.asarray(columns["rate"], np.float64), _instant_ns(begin))


def _number(said: str) -> float | None:
    try:
        return float(said)
    except ValueError:
        return None


def _instant_ns(begin: datetime | None) -> int | None:
    if begin is None:
        return None
    dated = begin if begin.tzinfo else begin.replace(tzinfo=UTC)
    return round(dated.timestamp()) * NS_PER_S


def _chosen(kind: SignalKind, said: str, known: list[tuple[str, str]]) -> tuple[str, str]:
    """Returns data set and zone."""
    named = [one for one in known if said in (one[1], f"{one[0]}/{one[1]}")]
    named = named or [one for one in known if said == one[0]]
    if len(named) == 1:
        return named[0]
    each = [f"{dataset}/{zone}" for dataset, zone in (named or known)]
    if named:
        raise UsageError(f"{kind.name} {said!r} is that of {len(named)} zones: take one of {', '.join(each)}")
    if not known:
        raise NotFoundError(
            f"the lake has no {kind.name}: run `twin ingest` on a folder of it, or give a number "
            f"({kind.rate_unit})"
        )
    near = suggestion(said, [*each, *(zone for _, zone in known)])
    raise NotFoundError(f"the lake has no {kind.name} of {said!r}{near}")
