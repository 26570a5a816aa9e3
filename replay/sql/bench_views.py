"""Views of benchmark results: comparisons, regret, noise, load, and the Pareto front."""

from replay.sql.view_definition import RUN, SEQ, SqlView, typed

VERDICTS = SqlView(
    "verdicts",
    "a comparison of two policies in a benchmark of several worlds",
    (
        RUN,
        SEQ,
        ("policy", "policy that is judged"),
        ("base", "policy that it is compared with"),
        ("worlds", "worlds in which both ran"),
        ("wins", "worlds in which the policy trained more tokens"),
        ("losses", "worlds in which it trained fewer"),
        ("ties", "worlds in which it trained as many"),
        (
            "saved",
            "share of the base's time per token that it saves, mean of worlds; NULL: one trained nothing",
        ),
        ("saved_low", "lower end of its 95 % interval over worlds"),
        ("saved_high", "upper end of it"),
        ("middle", "the same share, interquartile mean of worlds"),
        ("tokens", "additional tokens, as a share of the base's"),
        ("tokens_low", "lower end of its 95 % interval over worlds and time"),
        ("tokens_high", "upper end of it"),
        ("verdict", "better or worse if that interval excludes 0, else equal"),
    ),
    f"""
    SELECT run, seq, p.policy, p.base, p.worlds, p.wins, p.losses, p.ties, p.saved[1], p.saved[2], p.saved[3],
           p.saved_middle[1], p.tokens[1], p.tokens[2], p.tokens[3], p.verdict
    FROM {
        typed(
            "policies_compared",
            '"policy":"VARCHAR","base":"VARCHAR","worlds":"BIGINT","wins":"BIGINT","losses":"BIGINT",'
            '"ties":"BIGINT","saved":["DOUBLE"],"saved_middle":["DOUBLE"],"tokens":["DOUBLE"],"verdict":"VARCHAR"',
        )
    }
    """,
)

FRONTS = SqlView(
    "fronts",
    "share of the Pareto front that one policy reaches in a benchmark with --pareto",
    (
        RUN,
        SEQ,
        ("policy", "name of the policy"),
        ("points", "number of points, over all worlds"),
        ("coverage", "share of the front's points reached within 2 %, mean of worlds"),
        ("hypervolume", "as a share of the front's, mean of worlds"),
        ("exact", "true if all fixed plans were enumerated for the front"),
    ),
    f"""
    SELECT run, seq, p.policy, p.points, p.coverage, p.hypervolume, p.exact FROM {
        typed(
            "front_reached",
            '"policy":"VARCHAR","points":"BIGINT","coverage":"DOUBLE","hypervolume":"DOUBLE","exact":"BOOLEAN"',
        )
    }
    """,
)

REGRETS = SqlView(
    "regrets",
    "a run of a benchmark of several worlds against the clairvoyant bound",
    (
        RUN,
        SEQ,
        ("policy", "name of the policy"),
        ("seed", "of the world"),
        ("level", "noise added to its links, as in robustness; NULL: none"),
        ("of_run", "the run"),
        ("regret", "share of the bound's tokens not trained; NULL: the bound has none"),
        ("exact", "true if the bound is over all plans, not over candidates"),
    ),
    f"""
    SELECT run, seq, p.policy, p.seed, p.level, p.run, p.regret, p.exact FROM {
        typed(
            "regret_measured",
            '"policy":"VARCHAR","seed":"BIGINT","level":"DOUBLE","run":"VARCHAR","regret":"DOUBLE",'
            '"exact":"BOOLEAN"',
        )
    }
    """,
)

ROBUSTNESS = SqlView(
    "robustness",
    "loss of one policy, or of the bound, to noise of one level in a benchmark with --perturb",
    (
        RUN,
        SEQ,
        ("policy", "name of the policy; bound: the clairvoyant bound"),
        ("level", "bandwidths within +- this share of the measured ones"),
        ("worlds", "worlds, each against itself without noise"),
        ("median", "relative increase of time per token, median of worlds; NULL: one trained nothing"),
        ("worst", "largest increase of all worlds"),
    ),
    f"""
    SELECT run, seq, p.policy, p.level, p.worlds, p.median, p.worst FROM {
        typed(
            "noise_measured",
            '"policy":"VARCHAR","level":"DOUBLE","worlds":"BIGINT","median":"DOUBLE","worst":"DOUBLE"',
        )
    }
    """,
)

STEADINESS = SqlView(
    "steadiness",
    "one policy under one arrival rate of jobs in a benchmark with --load",
    (
        RUN,
        SEQ,
        ("policy", "name of the policy"),
        ("load", "arrival rate of jobs over that of the scenario"),
        ("worlds", "number of worlds"),
        ("stability", "1 - share of the jobs' time lost, mean of worlds"),
        ("stability_low", "lower end of its 95 % interval over worlds"),
        ("stability_high", "upper end of it"),
        ("worst", "smallest of all worlds"),
        ("queued", "share of the jobs' time before their first GPUs"),
        ("utilisation", "of all GPUs"),
    ),
    f"""
    SELECT run, seq, p.policy, p.load, p.worlds, p.stability[1], p.stability[2], p.stability[3], p.worst,
           p.queued, p.utilisation
    FROM {
        typed(
            "load_measured",
            '"policy":"VARCHAR","load":"DOUBLE","worlds":"BIGINT","stability":["DOUBLE"],"worst":"DOUBLE",'
            '"queued":"DOUBLE","utilisation":"DOUBLE"',
        )
    }
    """,
)
