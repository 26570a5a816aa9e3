"""Power: self-calibration on the SURF week, ramps and swings, and what limits cost in waiting."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl

from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from ingest.readers import job_logs
from policy.queue.registry import recipe
from twin.core.gpu_models import preset
from twin.costs.energy import busy_w
from twin.power.accounts import accounts, charged, totals
from twin.power.figures import power_figures
from twin.power.powered_queue import PowerChoices, simulate_with_power
from twin.power.self_calibration import (
    HOUR_S,
    LINE_ALONE,
    CalibrationSettings,
    Forecast,
    MeasuredPower,
    calibrated,
    hourly_errors,
    last_power,
    mean_error_percent,
    with_utilisation,
)
from twin.power.signals import CARBON, PRICE, Signal, SignalKind, constant, of_samples
from twin.power.site_power import PowerModel
from twin.power.swing import iteration_swing, ramps, steps_of_samples
from twin.queue.metrics import figures
from twin.queue.rules import PREDICTSIM
from twin.workload.selection import select

STEP_MS = 30_000
CHOSEN_S = 48 * HOUR_S
"""The first two days choose what a calibration looks back at; the others judge it."""
GRID = tuple(
    CalibrationSettings(fit * HOUR_S, residual, fading * HOUR_S)
    for fit, residual, fading in product((1, 2, 3, 6, 12), (0.0, 300.0, 600.0, 1800.0), (1, 3))
)
PROCESSORS, GPU = 125, "A100-80"
"""A quarter more processors than the log's machine has, so that a limit of power can be the narrower one."""


def surf(folder: Path) -> MeasuredPower:
    """Returns measured power and CPU use (MHz) of all tasks, each 30 s; a fragment is laid over the two
    samples that it covers."""
    read = (pl.read_parquet(folder / f"{name}.parquet") for name in ("consumption", "tasks", "fragments"))
    power, tasks, fragments = read
    begin = tasks["submission_time"].min()
    since = tasks.select("id", submit=(pl.col("submission_time") - begin).dt.total_milliseconds())
    place = pl.int_range(pl.len()).over("id") * STEP_MS
    laid = fragments.with_columns(place=place).join(since, on="id")
    start_ms = (laid["submit"] + laid["place"]).to_numpy()
    sample, part = start_ms // STEP_MS, start_ms % STEP_MS / STEP_MS
    used, count = laid["cpu_usage"].to_numpy(), int(sample.max()) + 2
    mhz = np.bincount(sample, used * (1 - part), count) + np.bincount(sample + 1, used * part, count)
    watts = power.sort("timestamp")
    at = watts["timestamp"].to_numpy() // STEP_MS - 1  # a sample at its end
    return MeasuredPower(STEP_MS / 1e3, watts["power_draw"].to_numpy(), mhz[at])


def calibration(measured: MeasuredPower) -> str:
    """Returns the section on self-calibration."""
    best = min(
        GRID,
        key=lambda one: mean_error_percent(
            hourly_errors(measured, with_utilisation(measured, one), last_s=CHOSEN_S)
        ),
    )
    started = perf_counter()
    for now in range(720, len(measured.power_w), 120):
        calibrated(measured, now, best)
    each_ms = 1e3 * (perf_counter() - started) / len(range(720, len(measured.power_w), 120))
    rows: list[tuple[str, str, Forecast]] = [
        ("line of the last 6 h", "yes", with_utilisation(measured, LINE_ALONE)),
        ("line and residual, chosen on days 1 and 2", "yes", with_utilisation(measured, best)),
        ("last measured power goes on", "no", last_power(measured)),
    ]
    heads = (
        "model, calibrated each hour", "utilisation of the next hour known", "whole week %", "days 3 to 7 %",
    )  # fmt: skip
    judged = (
        (name, known, f"{mean_error_percent(hourly_errors(measured, forecast)):.2f}",
         f"{mean_error_percent(hourly_errors(measured, forecast, CHOSEN_S)):.2f}")
        for name, known, forecast in rows
    )  # fmt: skip
    return f"""Mean absolute percentage error of measured power over the hour that follows a calibration,
samples of 30 s, from the seventh hour on. Published on this week: 4.39 % (a self-calibrating twin that
replays the tasks), 5.13 % (not calibrated), 7.86 % (earlier work); a line with the utilisation known: 1.86 %.
A calibration sees nothing later than its time but, where the table says so, the utilisation of the hour to
come, as a replay of the tasks has it. On the first two days the best of {len(GRID)} settings looks back
{best.fit_s / HOUR_S:g} h for the line and {best.residual_s / 60:g} min for its residual, which fades in
{best.fading_s / HOUR_S:g} h. A calibration takes {each_ms:.2f} ms.

{table(heads, judged)}"""


def swings(shared: Path, measured: MeasuredPower) -> str:
    """Returns the section on ramps and swings."""
    time_ns = np.arange(len(measured.power_w) + 1) * STEP_MS * 10**6
    watts = np.append(measured.power_w, measured.power_w[-1])
    found = ramps(steps_of_samples(time_ns, np.rint(watts * 1000).astype(np.int64)))
    rows = [
        ("SURF, samples of 30 s", f"{one.window_s:g}", f"{one.rise_w:,.0f}", f"{one.fall_w:,.0f}")
        for one in found
    ]
    heads = ("site", "window s", "largest rise W", "largest fall W")
    return f"{table(heads, iter(rows))}\n\n{iteration_swings(shared)}"


def iteration_swings(shared: Path) -> str:
    """Returns the table of swings of synchronous iterations."""
    sets = {
        "H100, data parallel, 16 accumulation steps": "t3_telemetry",
        "H100, tensor and pipeline parallel, node 0": "t13_node0_telemetry",
        "H100, model loaded, idle": "b1_telemetry",
    }
    rows = []
    for name, file in sets.items():
        path = shared / f"traces/gpu/telemetry-h100-dcgm-10hz/{file}.csv"
        data = pl.read_csv(path, columns=["timestamp", "gpu", "power_w"], infer_schema_length=10_000)
        # A collector reads one GPU after the other: each is laid on a common grid, then summed.
        each = [part.sort("timestamp") for part in data.partition_by("gpu")]
        low = max(float(part["timestamp"][0]) for part in each) + 60
        grid = np.arange(low, min(float(part["timestamp"][-1]) for part in each) - 60, 0.1)
        laid = [np.interp(grid, part["timestamp"].to_numpy(), part["power_w"].to_numpy()) for part in each]
        for what, power in (("one GPU", laid[0]), (f"{len(laid)} GPUs together", np.sum(laid, axis=0))):
            found = iteration_swing(grid, power)
            period = "-" if found.period_s is None else f"{found.period_s:.1f}"
            share = 100 * found.swing_w / found.mean_w
            rows.append((name, what, period, f"{found.mean_w:,.0f}", f"{found.swing_w:,.0f}", f"{share:.0f}"))
    heads = (
        "telemetry at 10 Hz, without its first and last minute", "of", "period s", "mean W", "swing W",
        "of the mean %",
    )  # fmt: skip
    return table(heads, iter(rows))


def signals(shared: Path, zone: str, carbon_zone: str) -> tuple[Signal, Signal]:
    """Returns carbon intensity and price of a zone from the beginning of 2024."""
    folder = shared / "energy"
    one = pl.read_csv(folder / f"carbon-intensity/{zone}_2024_hourly.csv", infer_schema_length=10_000)
    prices = folder / f"electricity-price/{zone}_electricity_prices_2024.csv"
    two = pl.read_csv(prices, infer_schema_length=10_000)
    return (
        _signal(CARBON, carbon_zone, one, "Carbon Intensity gCO₂eq/kWh (direct)"),
        _signal(PRICE, zone, two, "Price (USD/MWh)"),
    )


def _signal(kind: SignalKind, zone: str, data: pl.DataFrame, column: str) -> Signal:
    times = data["Datetime (UTC)"].cast(pl.String).str.slice(0, 19).str.replace("T", " ")
    time_ns = times.str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("ns").to_numpy()
    return of_samples(kind, zone, time_ns, data[column].to_numpy(), None)


def scenarios(shared: Path) -> str:
    """Returns the section on limits and deferral."""
    log = select(job_logs.read(shared / "jobs/swf/KTH-SP2-log.swf"), PREDICTSIM, PROCESSORS)
    carbon, price = signals(shared, "DE-LU", "DE")
    model = PowerModel.of_watts(GPU, preset(GPU).idle_w, busy_w(preset(GPU)))
    free = PowerChoices(model, carbon=carbon, price=price)
    ways = {
        "none": free,
        "power cap 44 kW": replace(free, cap_w=44e3),
        "power cap 40 kW": replace(free, cap_w=40e3),
        "ramp limit 34 kW/15 min": replace(free, rise_w=34e3, window_s=900),
        "constant 400 g/kWh, defer 12 h": replace(
            free, carbon=constant(CARBON, 400), defer="carbon", longest_ns=_h(12)
        ),
        "carbon, defer 6 h": replace(free, defer="carbon", longest_ns=_h(6)),
        "carbon, defer 24 h": replace(free, defer="carbon", longest_ns=_h(24)),
        "carbon, defer 24 h, hours known": replace(
            free, defer="carbon", longest_ns=_h(24), forecast="actual"
        ),
        "price, defer 24 h, hours known": replace(
            free, defer="price", longest_ns=_h(24), forecast="actual"
        ),
        "carbon, defer 24 h, cap 40 kW": replace(free, defer="carbon", longest_ns=_h(24), cap_w=40e3),
    }  # fmt: skip
    rows, exact = [], 0
    for policy, (name, way) in product(("easy", "saf+easy"), ways.items()):
        started = perf_counter()
        done = simulate_with_power(log.jobs, log.processors, recipe(policy), way)
        took_s = perf_counter() - started
        queue, power = figures(done.schedule), power_figures(done, way)
        amounts = charged(done.schedule, done.power, way.carbon, way.price)
        kept = totals(accounts(amounts, _users(log.jobs.user)))
        exact += (
            kept.energy_pj == power.exact["energy_pj"]
            and kept.carbon == power.exact["carbon_pj_ug_per_kwh"]
            and kept.cost == power.exact["cost_pj_uusd_per_mwh"]
        )
        rows.append((
            policy, name, f"{queue.avg_wait_s / 3600:.2f}", f"{queue.p95_wait_s / 3600:.2f}",
            f"{queue.avg_bounded_slowdown:.1f}", f"{power.energy_kwh / 1e3:.2f}", f"{power.peak_kw:.1f}",
            f"{power.ramps[-1].rise_w / 1e3:.1f}", f"{power.carbon_kg / 1e3:.2f}", f"{power.cost_usd:,.0f}",
            f"{100 * power.deferred:.0f}", f"{took_s:.2f}",
        ))  # fmt: skip
    heads = (
        "policy", "what is kept", "mean wait h", "95 % h", "bounded slowdown", "MWh", "peak kW",
        "rise in 15 min kW", "carbon t", "USD", "deferred %", "s",
    )  # fmt: skip
    gpu = preset(GPU)
    return f"""KTH-SP2, {len(log.jobs):,} jobs on {PROCESSORS} processors, each taken for an {GPU}
({gpu.idle_w:g} W idle, {busy_w(gpu):.0f} W busy): the power is an assumption, the log's machine had other
processors. PUE is 1. Second 0 of the log is the beginning of 2024 in Germany: intensity and prices are
measured, the pairing with this log is not. A job counts its estimate when it looks for hours; unless they are
known it takes the last 24 hours for the next ones. The accounts of the users sum to the site's energy, carbon
and money to the last digit in {exact} of {len(rows)} rows.

{table(heads, iter(rows))}

What a limit costs is the difference to `none` of the same policy. With constant intensity the schedule is
that of `none` and the carbon exactly energy x intensity. Jobs wait for any saving, however small: the bound
on the delay is the only price that they put on waiting."""


def _h(hours: float) -> int:
    return round(hours * 3600e9)


def _users(user: np.ndarray) -> list[str]:
    return [str(one) for one in user.tolist()]


def page(shared: Path) -> str:
    """Returns the page."""
    measured = surf(shared / "energy/surf-power")
    return "\n".join(_parts(shared, measured))


def _parts(shared: Path, measured: MeasuredPower) -> Iterator[str]:
    yield f"""# Power, carbon and price

Written by `python -m benchmarks.queue.power ../shared --page docs/measured/power.md`. The data lie beside the
repository; [Power of a queue](../tasks/power.md) says how to ask these questions of a log of your own.

## The next hour of a measured site
{calibration(measured)}

## Ramps, and the swing of synchronous iterations
A ramp within a window is the largest rise from any earlier power in it. Samples of 30 s do not show what
happens in less.

{swings(shared, measured)}

## Limits and clean hours, and what they cost in waiting
{scenarios(shared)}
"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
