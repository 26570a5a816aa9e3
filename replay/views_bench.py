"""Views of what benchmarks found: who is better than whom, and how much of the front a policy reaches."""

from replay.view import RUN, SEQ, View, typed

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
