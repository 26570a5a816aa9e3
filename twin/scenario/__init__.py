"""Everything a run depends on, prepared from a scenario file.

In come a `Scenario` (`twin.settings`), a part of the trace and the store with lake and calibrations; out goes
a frozen `PreparedScenario`: ground truth of the links, trained filters, jobs, faults, jitter.
`fault_timeline.py`, `step_jitter.py` and `submission.py` hold what a world then does with them. Start reading
at `prepare.py`.
"""
