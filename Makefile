# Two commands for a fresh machine: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check fuzz reliability soak clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

# The measured set where it lies beside the repository, else the synthetic one that ships.
MEASURED := $(wildcard ../shared/traces/wan/cloudpilot-iperf3)
DATASET := $(if $(MEASURED),cloudpilot-iperf3,synthetic-quad)
TWIN := $(BIN)/twin --store .twin/demo

demo: $(READY)
	@rm -rf .twin/demo
	@echo "WAN: $(if $(MEASURED),measured ($(MEASURED)),no measurements at hand: SYNTHETIC traces, made after the statistics of measured ones)"
	$(TWIN) ingest traces/ $(MEASURED)
	$(TWIN) bench --scenario tri-7b
	$(TWIN) bench --scenario quad-70b --dataset $(DATASET)
	$(TWIN) replay --policy hippo --scenario quad-70b --dataset $(DATASET)
	$(TWIN) audit latest
	$(TWIN) sql "select policy, decisions, moves, tokens, egress_usd from runs order by scenario, tokens desc"
	$(TWIN) report latest --compare

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every reader against damaged files, 5,000 each: ten minutes.
fuzz: $(READY)
	TWIN_FUZZ=5000 $(BIN)/python -m pytest tests/contract/test_malformed.py -v --durations=0

# Policies against each other and the bound, as docs/results.md: a quarter of an hour the first time.
results: $(READY)
	$(BIN)/python benchmarks/results.py

# The figures of every change, as docs/reliability.md: a quarter of an hour.
reliability: $(READY)
	PYTHONPATH=. $(BIN)/python benchmarks/reliability.py

# The figures of a night: kills, faults, flips and cuts times 100, a run of ten million events, the queries on it.
soak: $(READY)
	PYTHONPATH=. $(BIN)/python benchmarks/reliability.py --effort 100 --events 10000000 --out .twin/soak.md
	PYTHONPATH=. $(BIN)/python benchmarks/sql.py --events 10000000

clean:
	rm -rf .venv .twin
