"""Views of what benchmarks found: who is better than whom, regret, noise, load, and the front."""

from replay.sql.sql_view import RUN, SEQ, View, typed

VERDICTS = View(
    "verdicts",
    "one policy against another in a benchmark of several worlds",
    (
        RUN,
        SEQ,
        ("policy", "who is judged"),
        ("base", "against whom"),
        ("worlds", "worlds that both ran in"),
        ("wins", "worlds in which the policy trained more tokens"),
        ("losses", "worlds in which it trained fewer"),
        ("ties", "worlds in which it trained as many"),
        (
            "saved",
            "share of the other's time per token that it saves, mean of worlds; NULL: one trained nothing",
        ),
        ("saved_low", "lower end of its 95 % interval over worlds"),
        ("saved_high", "upper end of it"),
        ("middle", "the same share, interquartile mean of worlds"),
        ("tokens", "tokens that it trained more, as a share of the other's"),
        ("tokens_low", "lower end of its 95 % interval over worlds and time"),
        ("tokens_high", "upper end of it"),
        ("verdict", "better, equal or worse: whether that interval leaves out 0"),
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

FRONTS = View(
    "fronts",
    "what one policy reaches of the front in a benchmark with --pareto",
    (
        RUN,
        SEQ,
        ("policy", "whose runs"),
        ("points", "how many, in all worlds"),
        ("coverage", "share of the front's points that they reach within 2 %, mean of worlds"),
        ("hypervolume", "as a share of the front's, mean of worlds"),
        ("exact", "whether all fixed plans were enumerated for the front"),
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

REGRETS = View(
    "regrets",
    "a run of a benchmark of several worlds against the clairvoyant bound",
    (
        RUN,
        SEQ,
        ("policy", "whose run"),
        ("seed", "of the world"),
        ("level", "noise added to its links, as in robustness; NULL: none"),
        ("of_run", "the run"),
        ("regret", "share of the bound's tokens that it did not train; NULL: the bound has none"),
        ("exact", "whether the bound is over all plans, not over candidates"),
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

ROBUSTNESS = View(
    "robustness",
    "what one policy, or the bound, loses to noise of one level in a benchmark with --perturb",
    (
        RUN,
        SEQ,
        ("policy", "who; bound: the clairvoyant bound"),
        ("level", "bandwidths within +- this share of the measured ones"),
        ("worlds", "worlds, each against itself without noise"),
        ("median", "relative time per token more, median of worlds; NULL: one trained nothing"),
        ("worst", "the most of all worlds"),
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

STEADINESS = View(
    "steadiness",
    "one policy under jobs that come at one pace in a benchmark with --load",
    (
        RUN,
        SEQ,
        ("policy", "who"),
        ("load", "how many times as fast jobs come"),
        ("worlds", "how many"),
        ("stability", "1 - share of the jobs' time lost, mean of worlds"),
        ("stability_low", "lower end of its 95 % interval over worlds"),
        ("stability_high", "upper end of it"),
        ("worst", "the least of all worlds"),
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
