"""Look-ahead control: plans compared by their expected outcome over a forecast horizon.

In: a `View` with its `Forecast`. Out: a `Decision`, and the parts of it that `policy.baselines.mpc` and
`policy.hippo` share: the horizon with its link scenarios (`horizon.py`, start there), candidate plans that
are kept current, links as seen over relays, free knobs of a plan (relay routes, warm-up depth), the
break-even rule and the decision rule.
"""
