"""The contract of a policy, and what every policy shares.

In: a `View` at each trigger and the `Context` of the run. Out: a `Decision`, which holds or moves to a
`Plan`. Beside the contract (`protocol.py`, start there): the registry of policies and plugins, the weighted
objective and the reference plan that it is relative to, the conditions under which a plan cannot go on, and
the value of plans that may be left later.
"""
