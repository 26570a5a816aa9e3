"""Views of power: of the GPUs that a job holds, over time."""

from replay.sql.view_definition import JOB, RUN, SEQ, SqlView, typed

SITE_POWER = SqlView(
    "site_power",
    "a stretch of time in which the power of the site of a queue run is constant",
    (
        RUN,
        ("start_s", "when it begins, seconds of the log"),
        ("end_s", "when it ends"),
        ("power_w", "watts at the meter"),
        ("energy_pj", "picojoules, exact"),
    ),
    """
    SELECT run, start_ns / 1e9, end_ns / 1e9, mw / 1e3, mw::HUGEINT * (end_ns - start_ns) FROM (
      SELECT p.run AS run, sim_ns AS start_ns, (payload->>'$.meter_mw')::BIGINT AS mw,
             coalesce(lead(sim_ns) OVER (PARTITION BY p.run ORDER BY seq), last_ns) AS end_ns
      FROM parsed_events p
      JOIN (SELECT run, max(sim_ns) AS last_ns FROM parsed_events GROUP BY run) USING (run)
      WHERE type = 'power_changed')
    """,
)

LEDGER = SqlView(
    "ledger",
    "an account of a queue run whose power was kept: a user or group, or the site while nobody runs",
    (
        RUN,
        (
            "owner",
            "user, or group of --ledger group; `unknown` for jobs without one; `idle site`: no job runs",
        ),
        ("jobs", "jobs of the owner"),
        ("gpu_h", "hours of a processor"),
        ("energy_kwh", "at the meter"),
        ("carbon_g", "grams; NULL without --carbon"),
        ("cost_usd", "dollars; NULL without --price"),
        ("energy_pj", "picojoules, exact; they sum to those of `site_power`"),
        ("gpu_ns", "processors x nanoseconds, exact; they sum to those of the jobs"),
        ("carbon_exact", "picojoules x micrograms a kWh, exact; 3.6e24 of them are a gram"),
        ("cost_exact", "picojoules x microdollars a MWh, exact; 3.6e27 of them are a dollar"),
    ),
    """
    SELECT run, payload->>'$.owner', (payload->>'$.jobs')::BIGINT, (payload->>'$.gpu_ns')::HUGEINT / 3.6e12,
    (payload->>'$.energy_pj')::HUGEINT / 3.6e18, (payload->>'$.carbon')::HUGEINT / 3.6e24,
    (payload->>'$.cost')::HUGEINT / 3.6e27, (payload->>'$.energy_pj')::HUGEINT,
    (payload->>'$.gpu_ns')::HUGEINT, (payload->>'$.carbon')::HUGEINT, (payload->>'$.cost')::HUGEINT
    FROM parsed_events WHERE type = 'account_charged'
    """,
)

POWER = SqlView(
    "power",
    "a stretch of time with the mean power of the GPUs that a job holds, PUE included",
    (
        RUN,
        SEQ,
        JOB,
        ("kind", "type of the event that charges it: iteration_done, plan_applied (a pause) or time_lost"),
        ("start_s", "when it begins"),
        ("end_s", "when it ends"),
        ("energy_j", "joules; their sum over a run is its energy"),
        ("power_w", "watts, energy_j / (end_s - start_s)"),
    ),
    f"""
    SELECT run, seq, job, kind, start_ns / 1e9, end_ns / 1e9, energy_j, energy_j / ((end_ns - start_ns) / 1e9)
    FROM (
      SELECT run, seq, job, 'iteration_done' AS kind, p.start_ns AS start_ns, p.energy_j AS energy_j,
             p.start_ns + list_sum(list_transform(p.durations, lambda d: d[1] * d[2]))::BIGINT AS end_ns
      FROM {typed("iteration_done", '"start_ns":"BIGINT","durations":[["BIGINT"]],"energy_j":"DOUBLE"')}
      UNION ALL
      SELECT run, seq, job, 'plan_applied', p.started_ns, p.energy_j, sim_ns
      FROM {typed("plan_applied", '"started_ns":"BIGINT","energy_j":"DOUBLE"')}
      UNION ALL
      SELECT run, seq, job, 'time_lost', p.start_ns, p.energy_j, p.start_ns + p.lost_ns
      FROM {typed("time_lost", '"start_ns":"BIGINT","lost_ns":"BIGINT","energy_j":"DOUBLE"')}
    ) WHERE end_ns > start_ns
    """,
)
