"""Words of the options about power, and what is wrong with others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commands.frame.power_options import PowerWords, ramp, watts
from ingest.core.errors import UsageError

NONE = PowerWords(*(None,) * 11, 12.0, "yesterday", *(None,) * 5)
STORE = Path("no-store")


def test_powers_and_ramps_have_units() -> None:
    assert [watts(said, "--x") for said in ("250kW", "1.5 MW", "900W", "7 w")] == [250e3, 1.5e6, 900, 7]
    assert ramp("50kW/5min") == (50e3, 300) and ramp("2 MW/h") == (2e6, 3600)


@pytest.mark.parametrize(("read", "said"), [(lambda: watts("28", "--power-cap"), "--power-cap '28'"),
                                           (lambda: ramp("28/5min"), "--ramp-limit '28'")])  # fmt: skip
def test_a_power_without_a_unit_is_refused_with_both_readings(read: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=f"{said}: no unit; write 28W for watts or 28kW for kilowatts"):
        read()


def test_words_become_choices() -> None:
    assert not NONE.asked and replace(NONE, pue=1.2).asked
    made = replace(NONE, pue=1.2, power_cap="90kW", carbon="400", defer="carbon", max_delay=6).choices(STORE)
    assert (made.model.name, made.model.idle_mw, made.cap_w) == ("A100-80", 55_000, 90e3)
    assert made.longest_ns == 6 * 3600 * 10**9 and made.awaited is made.carbon
    said = replace(NONE, idle_power=90.0, busy_power=400.0, ramp_limit="5kW/1min").choices(STORE)
    assert (said.model.idle_mw, said.model.job_mw, said.rise_w) == (90_000, 310_000, 5e3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"power_cap": "much"}, "--power-cap 'much': give a power, as 250kW"),
        ({"ramp_limit": "50kW"}, "--ramp-limit '50kW': give a power and a time"),
        ({"idle_power": 90.0}, "go together: add the other one"),
        ({"idle_power": 90.0, "busy_power": 400.0, "gpu": "H100"}, "take one of them"),
        ({"gpu": "H1000"}, "H1000"),
        ({"begin": "noon", "carbon": "400"}, "--begin 'noon': give a time"),
        ({"begin": "2024-01-01"}, "add --carbon or --price"),
        ({"defer": "price", "carbon": "400"}, "--defer price needs --price"),
        ({"max_delay": -1.0, "carbon": "400"}, "give hours from 0 to 720"),
        ({"carbon": "-5"}, "give a number that can be"),
        ({"pue": 0.5}, "give 1 to 100"),
    ],
)
def test_one_message_for_what_means_nothing(words: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(NONE, **words).choices(STORE)  # type: ignore[arg-type]
