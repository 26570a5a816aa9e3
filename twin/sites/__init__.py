"""A queue over several sites: where a job runs, what its data cost to get there, how fast it is over links.

In: `QueueJobs`, `SiteJobs` (what each asks for and where its data lie), `SiteLinks` (bandwidth over time) and
`SiteOptions` (the ways to run each size, alone on a site or over several, with their rates), a `QueueRecipe`
and a `SiteChoice`. Out: a `SiteSchedule` and its figures (`figures.py`). `inputs.py` has the arrays,
`kernel.py` is the compiled event loop (`choosing.py` its choice of a way, by rules or a network;
`reservations.py` serves its conservative backfilling), `referee.py`
the same in SimPy, which tests hold it equal to. Start with `simulation.py`.
"""
