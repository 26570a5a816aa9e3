"""Our own policies but the learned one, one file each.

In: a `View` at each trigger. Out: a `Decision`. `static.py` (start there) splits layers evenly, `single.py`
stays in one domain, `greedy.py` takes the best plan for the present links; `mpc.py` looks ahead with the
parts of `policy.control`; `history.py` and `history_hour.py` keep what was best before the run.
"""
