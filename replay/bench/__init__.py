"""Benchmarks: policies x scenarios x seeds, paired in the same worlds.

In come the names of policies and `bench_world.BenchWorld`s; each cell is a run of the store. Out come
`result.Bench` (means, paired intervals, regret to the bound, fronts, load stability), its events
(`result_events`) and SVG plots (`plots`). `worker_pool` has the cells done in processes or over Ray
(`ray_tasks`). `comparison` is the table of one world. Start at `bench.py`.
"""
