"""Views of whole runs: inputs and totals, jobs, and training, evaluation and promotion of policies."""

from replay.sql.view_definition import RUN, SEQ, TIME, SqlView

BOUNDS = SqlView(
    "bounds",
    "the first or the last event of a run, or the time before its end that completed no iteration",
    (RUN, ("seq", ""), ("sim_ns", ""), ("type", ""), ("payload", "")),
    """
    SELECT run, seq, sim_ns, type, payload FROM parsed_events WHERE type IN ('run_started', 'run_finished')
    OR (type = 'time_lost' AND payload->>'$.reason' = 'horizon')
    """,
)
"""Internal: the events under `runs`."""

_LINK_CHANGES = """
    nullif(array_to_string(list_transform(from_json(s.p.scenario->'$.link_changes', '[{"src":"VARCHAR",
    "dst":"VARCHAR","bandwidth_factor":"VARCHAR","latency_factor":"DOUBLE","at_s":"VARCHAR","for_s":"VARCHAR",
    "both_ways":"BOOLEAN"}]'), lambda c: c.src || CASE WHEN c.both_ways THEN ' <> ' ELSE ' > ' END || c.dst ||
    ' = ' || c.bandwidth_factor || coalesce(' @ ' || c.at_s, '') || coalesce(' + ' || c.for_s, '') ||
    CASE WHEN c.latency_factor = 1 THEN '' ELSE ', latency x ' || c.latency_factor END), '; '), '')"""
"""Every link change of `s.p.scenario` in the form of `--link`, followed by its latency if that changes."""

_TOTALS = """
    (SELECT *, CASE WHEN t.iterations IS NOT NULL THEN coalesce(t.lost_iterations, 0) END AS lost,
    list_sum(list_transform(CASE WHEN len(jobs) > 0 THEN jobs ELSE [t.plans] END,
    lambda n: n - (n > 0)::BIGINT))::BIGINT AS moves
    FROM (SELECT run, sim_ns, from_json(payload->'$.totals.jobs.*.plans', '["BIGINT"]') AS jobs,
    from_json(payload->'$.totals', '{"tokens":"BIGINT","iterations":"BIGINT","lost_iterations":"BIGINT",
    "plans":"BIGINT","turns":"BIGINT","egress_usd":"DOUBLE","gpu_usd":"DOUBLE"}') AS t
    FROM bounds WHERE type = 'run_finished'))"""
"""Sums of finished runs: `t` as `run_finished` has them, `lost` iterations, `moves` without first plans, and
turns among them (NULL in logs of versions that did not count turns)."""

_PARTS = """
    (SELECT run, sum((payload->>'$.part_tokens')::DOUBLE) AS tokens FROM bounds WHERE type = 'time_lost'
    GROUP BY run)"""
"""Tokens of the iterations under way at the end of a run, by the share of each that was done."""


def _per_billion(usd: str) -> str:
    """USD for 1e9 progress tokens of a finished run."""
    return f"1e9 * ({usd}) / nullif(f.t.tokens + coalesce(e.tokens, 0.0), 0)"


RUNS = SqlView(
    "runs",
    "a run",
    (
        RUN,
        ("scenario", "name of the scenario"),
        ("policy", "name of the policy"),
        ("seed", "seed of all its generators"),
        ("engine", "kernel or des"),
        ("window", "part of the trace: train, validate, test, all, or from when to when"),
        ("dataset", "WAN data set if not the scenario's own"),
        ("checkpoint", "digest of the policy's checkpoint"),
        ("config_digest", "SHA-256 of the resolved configuration"),
        ("branch_of", "of a what-if: its base run; NULL: no what-if"),
        ("link_changes", "changed links in the form of --link; NULL: none"),
        ("weights", "of the objective in the form of --weights: efficiency, utilisation, cost"),
        ("domains", "names of the domains in their order"),
        ("finished", "true if the run ended"),
        ("horizon_s", "simulated seconds, of finished runs"),
        ("tokens", "tokens trained, of finished runs"),
        ("progress_tokens", "the same with the iteration under way at the end by its share"),
        ("iterations", "complete iterations, including those lost later, of finished runs"),
        ("lost_iterations", "of these, iterations lost to failures and preemptions"),
        ("moves", "changes of plan with a pause, after the first plan of each job"),
        (
            "turns",
            "changes of free knobs, without a pause; NULL in old logs, which count them as moves",
        ),
        ("egress_usd", "price of the bytes between domains, of finished runs"),
        ("gpu_usd", "price of the GPU time held, of finished runs"),
        ("tokens_per_s", "progress tokens by simulated seconds, of finished runs"),
        ("total_usd", "GPU time held and bytes between domains; GPUs without a price count as 0"),
        ("usd_per_1e9_tokens", "total_usd for 1e9 progress tokens"),
        ("rent_usd_per_1e9_tokens", "of it the GPU time held"),
        ("egress_usd_per_1e9_tokens", "of it the bytes between domains"),
        ("gpus_without_price", "domains whose GPUs have no price; whether plans held them is not asked"),
        ("events", "events stored"),
        ("segments", "segments stored"),
        ("stored_bytes", "bytes of its segments"),
        ("digest", "SHA-256 over the events stored so far; the identity of a finished run"),
        ("chain_head", "SHA-256 of its last manifest"),
    ),
    """
    SELECT m.run, s.p.scenario->>'$.name', s.p.policy, s.p.seed, s.p.engine, s.p."window", s.p.dataset,
    s.p.checkpoint, s.p.config_digest, s.p.branch->>'$.run', """
    + _LINK_CHANGES
    + """,
    (s.p.scenario->>'$.weights.efficiency') || ',' || (s.p.scenario->>'$.weights.utilisation') || ',' ||
    (s.p.scenario->>'$.weights.cost'), from_json(s.p.scenario->'$.cluster.domains[*].name', '["VARCHAR"]'),
    m.finished, f.sim_ns / 1e9, f.t.tokens, f.t.tokens + coalesce(e.tokens, 0.0), f.t.iterations + f.lost,
    f.lost, f.moves - coalesce(f.t.turns, 0), f.t.turns, f.t.egress_usd, f.t.gpu_usd,
    (f.t.tokens + coalesce(e.tokens, 0.0)) / nullif(f.sim_ns / 1e9, 0), f.t.gpu_usd + f.t.egress_usd,
    """
    + _per_billion("f.t.gpu_usd + f.t.egress_usd")
    + ", "
    + _per_billion("f.t.gpu_usd")
    + ", "
    + _per_billion("f.t.egress_usd")
    + """,
    list_transform(list_filter(from_json(s.p.scenario->'$.cluster.domains',
    '[{"name":"VARCHAR","usd_per_gpu_hour":"DOUBLE"}]'), lambda d: coalesce(d.usd_per_gpu_hour,
    (s.p.scenario->>'$.cluster.hardware.usd_per_gpu_hour')::DOUBLE) <= 0), lambda d: d.name),
    m.events, m.segments, m.stored_bytes, m.digest, m.chain_head
    FROM stored_runs m LEFT JOIN (SELECT run, from_json(payload, '{"scenario":"JSON","policy":"VARCHAR",
    "seed":"BIGINT","engine":"VARCHAR","window":"VARCHAR","dataset":"VARCHAR","checkpoint":"VARCHAR",
    "config_digest":"VARCHAR","branch":"JSON"}') AS p FROM bounds WHERE type = 'run_started' AND seq = 0) s
    USING (run) LEFT JOIN """
    + _TOTALS
    + """ f USING (run) LEFT JOIN """
    + _PARTS
    + """ e USING (run) """,
)

JOBS = SqlView(
    "jobs",
    "a change of a job's state; in a run without a queue the run itself is the one job",
    (
        RUN,
        SEQ,
        TIME,
        ("job", "name of the job; empty: the only one"),
        ("state", "submitted, started, preempted, finished or failed"),
        ("reason", "why"),
        ("gpus", "GPUs held per domain after it"),
    ),
    """
    SELECT run, seq, sim_ns / 1e9, job, state, p.reason, p.gpus FROM (SELECT run, seq, sim_ns, job,
    substr(type, 5) AS state, from_json(payload, '{"reason":"VARCHAR","gpus":["BIGINT"]}') AS p
    FROM parsed_events
    WHERE type IN ('job_submitted', 'job_started', 'job_preempted', 'job_finished', 'job_failed') UNION ALL
    SELECT run, seq, sim_ns, job, CASE type WHEN 'run_started' THEN 'started' ELSE 'finished' END,
    {'reason': 'the run', 'gpus': NULL::BIGINT[]} FROM parsed_events
    WHERE type IN ('run_started', 'run_finished') AND run NOT IN (SELECT run FROM parsed_events
    WHERE type = 'run_started' AND (json_array_length(payload->'$.scenario.jobs') > 0
    OR payload->>'$.policy' = 'queue'
    OR (payload->>'$.scenario.arrivals') IS NOT NULL)))
    """,
)

QUEUE_JOBS = SqlView(
    "queue_jobs",
    "a job of a queue run",
    (
        RUN,
        ("job", "name of the job"),
        ("user", "who submitted it; NULL: not known"),
        ("processors", "how many it holds"),
        ("estimate_s", "run time that was asked for"),
        ("submitted_s", "seconds of the log"),
        ("started_s", "its first start, seconds of the log"),
        ("finished_s", "seconds of the log"),
        ("wait_s", "time in which it waited: to its first start, and after a fault to the next one"),
        ("run_s", "time in which it held its processors, lost work included"),
        ("overtook", "true if it started before the head of the queue"),
        ("out_of_memory", "starts that needed more memory than its GPUs have"),
        ("restarts", "runs of it that faults of nodes ended"),
        ("lost_s", "work of those runs that no checkpoint kept"),
        ("follows", "job whose end it waited for before it was submitted; NULL: none"),
        ("think_s", "time from that end to its submission"),
    ),
    """
    SELECT run, job, "user", processors, estimate_ns / 1e9, submitted / 1e9, started / 1e9, finished / 1e9,
    CASE WHEN starts > restarts THEN (begun - submitted - broken) / 1e9 END,
    (finished + broken - begun) / 1e9, overtook, out_of_memory, restarts, lost / 1e9, follows, think_ns / 1e9
    FROM (SELECT run, job,
    any_value(p.spec."user") AS "user", any_value(p.spec.processors) AS processors,
    any_value(p.spec.estimate_ns) AS estimate_ns,
    any_value(p.spec."after") AS follows, any_value(p.spec.think_ns) AS think_ns,
    any_value(sim_ns) FILTER (type = 'job_submitted') AS submitted,
    min(sim_ns) FILTER (type = 'job_started') AS started,
    any_value(sim_ns) FILTER (type = 'job_finished') AS finished,
    count(*) FILTER (type = 'job_started') AS starts,
    coalesce(sum(sim_ns) FILTER (type = 'job_started'), 0) AS begun,
    count(*) FILTER (type = 'job_preempted') AS restarts,
    coalesce(sum(sim_ns) FILTER (type = 'job_preempted'), 0) AS broken,
    coalesce(sum(p.spec.lost_ns) FILTER (type = 'job_preempted'), 0) AS lost,
    count(*) FILTER (type = 'job_out_of_memory') AS out_of_memory,
    bool_or(p.reason LIKE 'overtakes%') AS overtook FROM (SELECT run, job, type, sim_ns, from_json(payload,
    '{"reason":"VARCHAR","spec":{"user":"VARCHAR","processors":"BIGINT","estimate_ns":"BIGINT",
    "lost_ns":"BIGINT","after":"VARCHAR","think_ns":"BIGINT"}}') AS p FROM parsed_events
    WHERE type IN ('job_submitted', 'job_started', 'job_preempted', 'job_finished', 'job_out_of_memory')
    AND run IN (SELECT run FROM parsed_events WHERE seq = 0 AND payload->>'$.policy' = 'queue'))
    GROUP BY run, job)
    """,
)

NODE_OUTAGES = SqlView(
    "node_outages",
    "a stretch of time in which a node of a queue run is out",
    (
        RUN,
        ("node", "number of the node, from 0"),
        ("kind", "fault or drain: the outage with which it begins"),
        ("down_s", "when it begins, seconds of the log"),
        ("up_s", "when the node is back; NULL: not before the last end"),
    ),
    """
    SELECT run, node, reason, down_ns / 1e9, up_ns / 1e9 FROM (SELECT run, type, p.node, p.reason,
    sim_ns AS down_ns, lead(sim_ns) OVER (PARTITION BY run, p.node ORDER BY seq) AS up_ns
    FROM (SELECT run, seq, sim_ns, type,
    from_json(payload, '{"node":"BIGINT","reason":"VARCHAR","outages":"BIGINT"}') AS p
    FROM parsed_events WHERE type IN ('node_down', 'node_up'))
    WHERE p.outages = CASE type WHEN 'node_down' THEN 1 ELSE 0 END) WHERE type = 'node_down'
    """,
)

TRAINING = SqlView(
    "training",
    "a step of a training or retraining, an evaluation or a promotion decision",
    (
        RUN,
        SEQ,
        ("event", "updated, evaluated, promoted, rejected; due, collected, trained, switched, interrupted"),
        ("stage", "stage of training, of updates"),
        ("number", "number of the update"),
        ("steps", "environment steps so far"),
        ("figures", "metrics or scores by name"),
        ("role", "champion or challenger, of evaluations"),
        ("checkpoint", "digest of the checkpoint"),
        ("champion", "digest of the champion before, of promotion decisions"),
        ("reason", "why, of promotion decisions"),
        ("low", "lower end of the 95 % interval of the paired difference"),
        ("high", "upper end of it"),
        ("details", "cause, data, switched checkpoints, JSON text, of steps of a retraining"),
    ),
    """
    SELECT run, seq, coalesce(p.step, substr(type, 8)), p.stage, p."update", p.steps,
    coalesce(p.metrics, p.scores), p.role, p.checkpoint, p.champion, p.reason, p."interval"[1],
    p."interval"[2], p.details FROM (SELECT run, seq, type, from_json(payload, '{"stage":"VARCHAR",
    "update":"BIGINT","steps":"BIGINT","metrics":"MAP(VARCHAR,DOUBLE)","scores":"MAP(VARCHAR,DOUBLE)",
    "role":"VARCHAR","checkpoint":"VARCHAR","champion":"VARCHAR","reason":"VARCHAR","interval":["DOUBLE"],
    "step":"VARCHAR","details":"JSON"}') AS p FROM parsed_events WHERE type IN ('policy_updated',
    'policy_evaluated', 'policy_promoted', 'policy_rejected', 'retraining_step'))
    """,
)
