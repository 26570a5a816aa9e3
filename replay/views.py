"""The views of `twin sql` over the event log; their documentation is generated from these definitions.

Each view is a SELECT over `parsed_events` (one row an event, payload as JSON text) and `runs`. A payload is
parsed once per row, into a struct of just the fields that the view shows. No view mixes the events of two
runs, so the rows of a finished run can be kept (`replay.derived`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A view: its name, what one row is, (column, meaning) in order, and the SELECT that gives these
    columns."""

    name: str
    row: str
    columns: tuple[tuple[str, str], ...]
    select: str


RUN = ("run", "id of the run")
SEQ = ("seq", "number of the event in its run")
TIME = ("time_s", "simulated seconds since the start of the run")


def _typed(kind: str, fields: str) -> str:
    """Events of one type, their payload as a struct `p`; `fields` is the structure for `from_json`."""
    parsed = f"from_json(payload, '{{{fields}}}') AS p"
    return f"(SELECT run, seq, sim_ns, job, wall, {parsed} FROM parsed_events WHERE type = '{kind}')"


def _sum_bytes(column: str) -> str:
    """Sum over the third entries of `[[i, j, bytes], ...]`."""
    return f"coalesce(list_sum(list_transform({column}, lambda e: e[3])), 0)::BIGINT"


EVENTS = View(
    "events",
    "an event as stored",
    (
        RUN,
        SEQ,
        ("sim_ns", "simulated nanoseconds since the start of the run"),
        TIME,
        ("type", "type of the event"),
        ("version", "version of its payload"),
        ("job", "job it belongs to, empty if there is only one"),
        ("payload", "what happened, JSON text; fields as documented per type"),
        ("wall", "wall-clock figures, JSON text, outside the digest"),
    ),
    "SELECT run, seq, sim_ns, sim_ns / 1e9, type, version, job, payload, wall FROM stored_events",
)

BOUNDS = View(
    "bounds",
    "the first or the last event of a run",
    (RUN, ("seq", ""), ("sim_ns", ""), ("type", ""), ("payload", "")),
    "SELECT run, seq, sim_ns, type, payload FROM parsed_events WHERE type IN ('run_started', 'run_finished')",
)
"""Not for users: what `runs` is made of."""

_LINK_CHANGES = """
    nullif(array_to_string(list_transform(from_json(s.p.scenario->'$.link_changes', '[{"src":"VARCHAR",
    "dst":"VARCHAR","bandwidth_factor":"VARCHAR","latency_factor":"DOUBLE","at_s":"VARCHAR","for_s":"VARCHAR",
    "both_ways":"BOOLEAN"}]'), lambda c: c.src || CASE WHEN c.both_ways THEN ' <> ' ELSE ' > ' END || c.dst ||
    ' = ' || c.bandwidth_factor || coalesce(' @ ' || c.at_s, '') || coalesce(' + ' || c.for_s, '') ||
    CASE WHEN c.latency_factor = 1 THEN '' ELSE ', latency x ' || c.latency_factor END), '; '), '')"""
"""Of `s.p.scenario`: every change in the form of `--link`, its latency behind it if that changes too."""

RUNS = View(
    "runs",
    "a run",
    (
        RUN,
        ("scenario", "name of the scenario"),
        ("policy", "name of the policy"),
        ("seed", "seed of all its generators"),
        ("engine", "kernel or des"),
        ("window", "part of the trace: train, validate, test, all"),
        ("dataset", "WAN data set if not the scenario's own"),
        ("checkpoint", "digest of the policy's checkpoint"),
        ("config_digest", "SHA-256 of the resolved configuration"),
        ("branch_of", "of a what-if: the run that it leaves; NULL: a run of its own"),
        ("link_changes", "links that are other ones than measured, as --link has them; NULL: none"),
        ("weights", "of the objective, as --weights has them: efficiency, utilisation, cost"),
        ("domains", "names of the domains in their order"),
        ("finished", "whether it came to its end"),
        ("horizon_s", "simulated seconds, of finished runs"),
        ("tokens", "tokens trained, of finished runs"),
        ("iterations", "complete iterations, of finished runs"),
        ("moves", "changes of plan after the first, of finished runs"),
        ("egress_usd", "price of the bytes between domains, of finished runs"),
        ("gpu_usd", "price of the GPU time held, of finished runs"),
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
    m.finished, f.sim_ns / 1e9, f.t.tokens, f.t.iterations, f.t.plans - 1, f.t.egress_usd, f.t.gpu_usd,
    m.events, m.segments, m.stored_bytes, m.digest, m.chain_head FROM stored_runs m LEFT JOIN (SELECT run,
    from_json(payload, '{"scenario":"JSON","policy":"VARCHAR","seed":"BIGINT",
    "engine":"VARCHAR","window":"VARCHAR","dataset":"VARCHAR","checkpoint":"VARCHAR",
    "config_digest":"VARCHAR","branch":"JSON"}') AS p FROM bounds WHERE type = 'run_started' AND seq = 0) s
    USING (run) LEFT JOIN (SELECT run, sim_ns, from_json(payload->'$.totals', '{"tokens":"BIGINT",
    "iterations":"BIGINT","plans":"BIGINT","egress_usd":"DOUBLE","gpu_usd":"DOUBLE"}') AS t FROM bounds
    WHERE type = 'run_finished') f USING (run) """,
)

DECISIONS = View(
    "decisions",
    "a decision",
    (
        RUN,
        ("number", "number of the decision, from 0"),
        SEQ,
        TIME,
        ("trigger", "start, period, change, alarm, failure or repair"),
        ("action", "hold or move"),
        ("reason", "why, in words"),
        ("predicted_iter_s", "expected seconds of an iteration under the answer"),
        ("plan", "the answer, JSON text; NULL: hold"),
        ("candidates", "how many plans were compared"),
        ("best_iter_s", "shortest expected iteration among them"),
        ("log_probability", "of the sampled action"),
        ("fallback", "why the answer is not the policy's own; NULL: it is"),
        ("latency_s", "wall-clock seconds the policy took"),
        ("coordination_s", "wall-clock seconds from the trigger to the validated plan"),
        ("observation", "what the policy saw, JSON text"),
        ("compared", "the plans compared with their scores, JSON text"),
    ),
    f"""
    SELECT run, p.number, seq, sim_ns / 1e9, p.observation->>'$.trigger', p.action, p.reason,
           p.predicted_iter_s, p.plan, coalesce(len(p.candidates), 0),
           list_min(list_transform(p.candidates, lambda c: (c->>'$.iter_s')::DOUBLE)),
           p.log_probability, p.fallback, (wall->>'$.latency_s')::DOUBLE, (wall->>'$.coordination_s')::DOUBLE,
           p.observation, p.candidates::JSON
    FROM {
        _typed(
            "decided",
            '"number":"BIGINT","action":"VARCHAR","reason":"VARCHAR","predicted_iter_s":"DOUBLE","plan":"JSON",'
            '"candidates":["JSON"],"log_probability":"DOUBLE","fallback":"VARCHAR","observation":"JSON"',
        )
    }
    """,
)

PLANS = View(
    "plans",
    "a plan that took effect",
    (
        RUN,
        SEQ,
        TIME,
        ("until_s", "when the next plan took effect; NULL: the last one"),
        ("pause_s", "seconds training stood still for it, restart included"),
        ("restart_s", "the fixed part of the pause"),
        ("moved_bytes", "bytes that changed domain"),
        ("egress_usd", "price of the move"),
        ("route", "names of the domains in pipeline order"),
        ("layers", "layers per domain in pipeline order"),
        ("dp", "pipelines side by side"),
        ("micro_batch", "sequences in a micro-batch"),
        ("micro_batches", "micro-batches an iteration and pipeline"),
        ("gpus", "GPUs held per domain, in the order of the scenario"),
        ("plan", "the plan, JSON text"),
    ),
    f"""
    SELECT e.run, seq, sim_ns / 1e9, lead(sim_ns) OVER (PARTITION BY e.run ORDER BY seq) / 1e9,
           p.pause_ns / 1e9, p.restart_ns / 1e9, {_sum_bytes("p.moved_bytes")}, p.egress_usd,
           list_transform(p.plan.shares, lambda s: r.domains[s.domain + 1]),
           list_transform(p.plan.shares, lambda s: s.layers),
           p.plan.dp, p.plan.micro_batch, p.plan.micro_batches, p.gpus, raw
    FROM (SELECT run, seq, sim_ns, payload->'$.plan' AS raw, from_json(payload,
            '{{"pause_ns":"BIGINT","restart_ns":"BIGINT","moved_bytes":[["BIGINT"]],"egress_usd":"DOUBLE",
              "gpus":["BIGINT"],"plan":{{"shares":[{{"domain":"INTEGER","layers":"INTEGER"}}],"dp":"INTEGER",
              "micro_batch":"INTEGER","micro_batches":"INTEGER"}}}}') AS p
          FROM parsed_events WHERE type = 'plan_applied') e
    LEFT JOIN runs r USING (run)
    """,
)

ITERATIONS = View(
    "iterations",
    "a batch of complete iterations under one plan, between two other facts",
    (
        RUN,
        SEQ,
        ("first", "number of its first iteration"),
        ("count", "how many iterations"),
        ("start_s", "when the first one began"),
        ("end_s", "when the last one ended"),
        ("iter_s", "mean seconds of an iteration"),
        ("tokens", "tokens trained"),
        ("stalled_s", "seconds in which a used link was dead"),
        ("utilisation", "computing time over wall time of the domains in the plan"),
        ("wan_bytes", "bytes between domains"),
        ("egress_usd", "their price"),
        ("gpu_usd", "price of the GPU time held"),
        ("energy_j", "energy of the GPUs held"),
        ("links", "[[source, destination, bytes], ...] between domains"),
    ),
    f"""
    SELECT run, seq, p.first, p.count, p.start_ns / 1e9, (p.start_ns + length_ns) / 1e9,
           length_ns / p.count / 1e9, p.tokens, p.stalled_ns / 1e9,
           list_sum(p.compute_ns) / nullif(list_sum(p.active_ns), 0),
           {_sum_bytes("p.wan_bytes")}, p.egress_usd, p.gpu_usd, p.energy_j, p.wan_bytes
    FROM (SELECT *, list_sum(list_transform(p.durations, lambda d: d[1] * d[2]))::BIGINT AS length_ns FROM {
        _typed(
            "iteration_done",
            '"first":"BIGINT","count":"BIGINT","start_ns":"BIGINT","durations":[["BIGINT"]],"tokens":"BIGINT",'
            '"stalled_ns":"BIGINT","compute_ns":["BIGINT"],"active_ns":["BIGINT"],"wan_bytes":[["BIGINT"]],'
            '"egress_usd":"DOUBLE","gpu_usd":"DOUBLE","energy_j":"DOUBLE"',
        )
    })
    """,
)

_OBSERVED = _typed("link_observed", '"samples":[["DOUBLE"]]')

LINKS = View(
    "links",
    "one link at one tick of telemetry, or as the filter saw it at a decision",
    (
        RUN,
        SEQ,
        TIME,
        ("kind", "observed (telemetry) or estimated (filter)"),
        ("src", "name of the source domain"),
        ("dst", "name of the destination domain"),
        ("bandwidth_bps", "bits per second; 0: dead"),
        ("latency_s", "one way"),
        ("sd_log", "standard deviation of the logarithm of the bandwidth, of estimates"),
        ("next_bps", "bandwidth that telemetry brought next for this link, of estimates"),
    ),
    f"""
    SELECT e.run, seq, sim_ns / 1e9, kind, r.domains[s[1]::INTEGER + 1], r.domains[s[2]::INTEGER + 1], s[3],
           CASE kind WHEN 'observed' THEN s[4] ELSE s[5] END, CASE kind WHEN 'estimated' THEN s[4] END,
           list_filter(later, lambda o: o[1] = s[1] AND o[2] = s[2])[1][3]
    FROM (SELECT run, seq, sim_ns, 'observed' AS kind, unnest(p.samples) AS s, NULL::DOUBLE[][] AS later
          FROM {_OBSERVED}
          UNION ALL
          SELECT h.run, h.seq, h.sim_ns, 'estimated', unnest(h.p.links), o.p.samples
          FROM {_typed("state_estimated", '"links":[["DOUBLE"]]')} h
          ASOF LEFT JOIN {_OBSERVED} o ON h.run = o.run AND h.seq < o.seq) e
    LEFT JOIN runs r USING (run)
    """,
)

JOBS = View(
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
    WHERE type IN ('run_started', 'run_finished'))
    """,
)

TRAINING = View(
    "training",
    "a step of training or of a retraining, an evaluation or a judgement of a policy",
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
        ("champion", "digest of the champion before, of judgements"),
        ("reason", "why, of judgements"),
        ("low", "lower end of the 95 % interval of the paired difference"),
        ("high", "upper end of it"),
        ("details", "cause, data, what was switched, JSON text, of steps of a retraining"),
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

VIEWS = (EVENTS, RUNS, DECISIONS, PLANS, ITERATIONS, LINKS, JOBS, TRAINING)
"""In the order of creation: `runs` before the views that use it."""

KEPT = (BOUNDS, DECISIONS, PLANS, ITERATIONS, LINKS, JOBS, TRAINING)
"""Views whose rows follow from the events of a finished run alone."""


def describe() -> str:
    """Documentation of every view, generated from its definition."""
    parts = []
    for view in VIEWS:
        parts.append(f"{view.name}: one row is {view.row}")
        parts += [f"    {name:18} {meaning}" for name, meaning in view.columns]
    return "\n".join(parts)
