"""Signals of the lake by the names that people give them."""

from datetime import datetime
from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.pipeline.ingest import ingest
from tests.support.kits_energy import CARBON as HEADER
from tests.support.kits_energy import PRICES, carbon, price
from twin.power.lake_signals import signal
from twin.power.signals import CARBON, PRICE


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("energy")
    for name, zone in (("one", "DE"), ("two", "DE"), ("two", "FR")):
        place = folder / name
        place.mkdir(exist_ok=True)
        rows = [carbon(f"2024-01-01 {hour:02}:00:00", str(100 + hour), zone) for hour in range(4)]
        (place / f"{zone}.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    (folder / "market").mkdir()
    hours = [price(f"2024-01-01 0{hour}:00:00+00:00", str(hour - 2)) for hour in (0, 1, 3)]
    (folder / "market" / "DE-LU_electricity_prices_2024.csv").write_text("\n".join([PRICES, *hours]) + "\n")
    ingest([folder / name for name in ("one", "two", "market")], folder / "store")
    return folder / "store"


def test_a_zone_a_data_set_or_both_name_a_signal(store: Path) -> None:
    assert signal(store, CARBON, "FR").series.value.tolist() == [100e6, 101e6, 102e6, 103e6]
    assert signal(store, CARBON, "two/DE").name == "DE"
    assert signal(store, CARBON, "one").name == "DE"
    assert signal(store, PRICE, "market").series.value.tolist() == [-2e6, -1e6]
    later = signal(store, CARBON, "FR", datetime.fromisoformat("2024-01-01T02:30"))
    assert later.series.end_ns == 1.5 * 3600e9


def test_a_number_is_constant(store: Path) -> None:
    assert signal(store, PRICE, "-7.5").series.value.tolist() == [-7_500_000]


def test_an_unknown_or_ambiguous_zone_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'DE' is that of 2 zones: take one of one/DE, two/DE"):
        signal(store, CARBON, "DE")
    with pytest.raises(NotFoundError, match="no carbon intensity of 'FRA'; did you mean 'FR'"):
        signal(store, CARBON, "FRA")
    with pytest.raises(NotFoundError, match="the lake has no carbon intensity: run `twin ingest`"):
        signal(tmp_path, CARBON, "DE")
    with pytest.raises(UsageError, match=r"not known at 2024-01-01 02:00 UTC.*the first gap"):
        signal(store, PRICE, "DE-LU", datetime.fromisoformat("2024-01-01T02:00+00:00"))
