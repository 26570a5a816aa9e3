"""Views of power: of the GPUs that a job holds, over time."""

from replay.sql.view_definition import JOB, RUN, SEQ, SqlView, typed

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
