"""Keys of a scenario file, typed and checked; `docs/reference/scenarios.md` is generated from them.

In comes YAML (`ingest.core.config.load`), out goes a frozen `Scenario`; an unknown key or value is an error
with file and line. `wan_links.py` has the keys of the links, `disturbances.py` those of faults and noise,
`window.py` the parts of a series that runs train and test on. Start reading at `scenario_file.py`.
"""
