"""Queues of scenarios: jobs of the lake on a pool, on nodes or over sites, replayed, benched, and solved for.

In: a `QueueScenario` and names of schedulers, or a log and a target. Out: a comparison whose schedules are
runs of the store, a bench over loads and seeds, or the least machine that meets a target. Start with
`scenario_run.py`; `bench.py` is over several worlds, `capacity.py` answers how much is needed; `on_sites.py`
plays over sites, with `span_rates.py` for jobs that run over several. The schedules themselves are made and
kept in the room replay/logqueue.
"""
