"""The simulation of a run: jobs, decisions, telemetry, faults, GPU allocation and accounts on one clock.

In: a `PreparedScenario` and the decisions of policies (`World.apply`). Out: facts in order, a `Trigger`
among them where a decision is due. A job is a `JobRuntime` with an `Execution`, a `Ledger` and a
`DecisionTrigger`. Start with `world.py`.
"""
