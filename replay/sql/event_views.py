"""Views of events: all events, and decisions, plans, iterations and links."""

from replay.sql.view_definition import JOB, RUN, SEQ, TIME, SqlView, sum_bytes, typed

EVENTS = SqlView(
    "events",
    "an event as stored",
    (
        RUN,
        SEQ,
        ("sim_ns", "simulated nanoseconds since the start of the run"),
        TIME,
        ("type", "type of the event"),
        ("version", "version of its payload"),
        JOB,
        ("payload", "JSON text; fields as documented per type"),
        ("wall", "wall-clock figures, JSON text, outside the digest"),
    ),
    "SELECT run, seq, sim_ns, sim_ns / 1e9, type, version, job, payload, wall FROM stored_events",
)

DECISIONS = SqlView(
    "decisions",
    "a decision",
    (
        RUN,
        ("number", "number of the decision, from 0"),
        SEQ,
        TIME,
        JOB,
        ("trigger", "start, period, change, alarm, failure or repair"),
        ("action", "hold, turn (free knobs alone) or move"),
        ("reason", "why, in words; d0, d1, ... are the domains of the run in their order"),
        ("predicted_iter_s", "expected seconds of an iteration under the decision"),
        ("plan", "the new plan, JSON text; NULL: hold"),
        ("candidates", "how many plans were compared"),
        ("best_iter_s", "shortest expected iteration among them"),
        ("log_probability", "of the sampled action"),
        ("fallback", "why the decision is not the policy's own; NULL: it is"),
        ("latency_s", "wall-clock seconds the policy took"),
        ("coordination_s", "wall-clock seconds from the trigger to the validated plan"),
        ("observation", "view of the policy, JSON text"),
        ("compared", "the plans compared with their scores, JSON text"),
    ),
    f"""
    SELECT run, p.number, seq, sim_ns / 1e9, job, p.observation->>'$.trigger', p.action, p.reason,
           p.predicted_iter_s, p.plan, coalesce(len(p.candidates), 0),
           list_min(list_transform(p.candidates, lambda c: (c->>'$.iter_s')::DOUBLE)),
           p.log_probability, p.fallback, (wall->>'$.latency_s')::DOUBLE, (wall->>'$.coordination_s')::DOUBLE,
           p.observation, p.candidates::JSON
    FROM {
        typed(
            "decided",
            '"number":"BIGINT","action":"VARCHAR","reason":"VARCHAR","predicted_iter_s":"DOUBLE","plan":"JSON",'
            '"candidates":["JSON"],"log_probability":"DOUBLE","fallback":"VARCHAR","observation":"JSON"',
        )
    }
    """,
)

PLANS = SqlView(
    "plans",
    "a plan that took effect",
    (
        RUN,
        SEQ,
        TIME,
        JOB,
        ("until_s", "when the job's next plan took effect; NULL: its last one"),
        ("pause_s", "seconds of the pause for it, restart included"),
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
    SELECT e.run, seq, sim_ns / 1e9, e.job, lead(sim_ns) OVER (PARTITION BY e.run, e.job ORDER BY seq) / 1e9,
           p.pause_ns / 1e9, p.restart_ns / 1e9, {sum_bytes("p.moved_bytes")}, p.egress_usd,
           list_transform(p.plan.shares, lambda s: r.domains[s.domain + 1]),
           list_transform(p.plan.shares, lambda s: s.layers),
           p.plan.dp, p.plan.micro_batch, p.plan.micro_batches, p.gpus, raw
    FROM (SELECT run, job, seq, sim_ns, payload->'$.plan' AS raw, from_json(payload,
            '{{"pause_ns":"BIGINT","restart_ns":"BIGINT","moved_bytes":[["BIGINT"]],"egress_usd":"DOUBLE",
              "gpus":["BIGINT"],"plan":{{"shares":[{{"domain":"INTEGER","layers":"INTEGER"}}],"dp":"INTEGER",
              "micro_batch":"INTEGER","micro_batches":"INTEGER"}}}}') AS p
          FROM parsed_events WHERE type = 'plan_applied') e
    LEFT JOIN runs r USING (run)
    """,
)

ITERATIONS = SqlView(
    "iterations",
    "a batch of complete iterations under one plan, between two other events",
    (
        RUN,
        SEQ,
        JOB,
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
    SELECT run, seq, job, p.first, p.count, p.start_ns / 1e9, (p.start_ns + length_ns) / 1e9,
           length_ns / p.count / 1e9, p.tokens, p.stalled_ns / 1e9,
           list_sum(p.compute_ns) / nullif(list_sum(p.active_ns), 0),
           {sum_bytes("p.wan_bytes")}, p.egress_usd, p.gpu_usd, p.energy_j, p.wan_bytes
    FROM (SELECT *, list_sum(list_transform(p.durations, lambda d: d[1] * d[2]))::BIGINT AS length_ns FROM {
        typed(
            "iteration_done",
            '"first":"BIGINT","count":"BIGINT","start_ns":"BIGINT","durations":[["BIGINT"]],"tokens":"BIGINT",'
            '"stalled_ns":"BIGINT","compute_ns":["BIGINT"],"active_ns":["BIGINT"],"wan_bytes":[["BIGINT"]],'
            '"egress_usd":"DOUBLE","gpu_usd":"DOUBLE","energy_j":"DOUBLE"',
        )
    })
    """,
)

_OBSERVED = typed("link_observed", '"samples":[["DOUBLE"]]')

LINKS = SqlView(
    "links",
    "one link at one tick of telemetry, or its filtered state at a decision",
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
        ("next_bps", "bandwidth of the next telemetry of this link, of estimates"),
    ),
    f"""
    SELECT e.run, seq, sim_ns / 1e9, kind, r.domains[s[1]::INTEGER + 1], r.domains[s[2]::INTEGER + 1], s[3],
           CASE kind WHEN 'observed' THEN s[4] ELSE s[5] END, CASE kind WHEN 'estimated' THEN s[4] END,
           list_filter(later, lambda o: o[1] = s[1] AND o[2] = s[2])[1][3]
    FROM (SELECT run, seq, sim_ns, 'observed' AS kind, unnest(p.samples) AS s, NULL::DOUBLE[][] AS later
          FROM {_OBSERVED}
          UNION ALL
          SELECT h.run, h.seq, h.sim_ns, 'estimated', unnest(h.p.links), o.p.samples
          FROM {typed("state_estimated", '"links":[["DOUBLE"]]')} h
          ASOF LEFT JOIN {_OBSERVED} o ON h.run = o.run AND h.seq < o.seq) e
    LEFT JOIN runs r USING (run)
    """,
)
