# Two commands for a fresh machine: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Bytecode is kept also where the environment says not to: pip compiles none, and without it each process compiles
# all that it imports, torch for seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo comparisons lab lab-loop serve-demo test check style types imports kernels docs pages fuzz results reliability soak lock release clean

# On Linux pip takes the torch for CUDA, about 6 GB; TORCH_INDEX=https://download.pytorch.org/whl/cpu the one for CPUs.
TORCH := $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) torch

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

# Measured links: tri-7b takes wanify-aws8, fetched or from the mirror beside the repository; quad-70b takes
# cloudpilot-iperf3, whose archives only the mirror has. Where a set cannot be had, the synthetic one is used and said.
MIRROR := $(wildcard ../shared/traces)
MEASURED := $(if $(MIRROR),$(wildcard $(MIRROR)/wan/cloudpilot-iperf3))
QUAD := $(if $(MEASURED),cloudpilot-iperf3,synthetic-quad)
STORE := .twin/demo
TWIN := $(BIN)/twin --store $(STORE)

demo: $(READY)
	@rm -rf $(STORE)
	@if $(TWIN) fetch wanify-aws8 $(if $(MIRROR),--mirror $(MIRROR)); then \
	  $(MAKE) --no-print-directory comparisons TRI=wanify-aws8 TRACES="traces/ $(STORE)/fetched/wanify-aws8 $(MEASURED)"; \
	else \
	  echo "wanify-aws8 could not be fetched: tri-7b runs on SYNTHETIC links, made after the statistics of measured ones"; \
	  $(MAKE) --no-print-directory comparisons TRI=synthetic-tri TRACES="traces/ $(MEASURED)"; \
	fi

comparisons:
	$(if $(MEASURED),,@echo "cloudpilot-iperf3 is not at hand: quad-70b runs on SYNTHETIC links, made after its statistics")
	$(TWIN) ingest $(TRACES)
	$(TWIN) bench --scenario tri-7b --dataset $(TRI)
	$(TWIN) bench --scenario quad-70b --dataset $(QUAD)
	$(TWIN) replay --policy hippo --scenario quad-70b --dataset $(QUAD)
	$(TWIN) audit latest
	$(TWIN) sql "select scenario, policy, moves, iterations, tokens, egress_usd from runs order by scenario, tokens desc"
	$(TWIN) report latest --compare
	@echo "That page opens in any browser. Commands of your own: . $(BIN)/activate; twin --store $(STORE) status"

# A small job trained for real over an emulated network, beside its prediction: two minutes. Needs Linux and root.
lab: $(READY)
	$(BIN)/twin --store .twin/lab ingest traces/synthetic-tri
	$(BIN)/twin --store .twin/lab lab

lab-loop: $(READY)
	$(BIN)/twin --store .twin/lab ingest traces/synthetic-tri
	$(BIN)/python -m lab.closed_loop --store .twin/lab

# A decision service with its console, links that ship played at 60 times their speed, and a simulated job; Prometheus
# scrapes it where it is installed. Needs the extra `serve`; Ctrl-C ends everything.
serve-demo: $(READY)
	$(BIN)/twin --store .twin/serve ingest traces/synthetic-tri
	$(BIN)/python examples/serve_demo.py --store .twin/serve

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Parts that need nothing of each other: `make --jobs 2 check`.
check: style types imports docs

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

# Compiles what a first decision needs, once, instead of every process of the tests for itself.
kernels: $(READY)
	$(BIN)/twin doctor --compile --quiet

# The documentation as a site; dead links and unknown references are errors.
docs: $(READY)
	$(BIN)/sphinx-build -W -n -q --keep-going -c docs . .docs-site

# Pages and pictures that are made from the code; tests fail while one is stale.
pages: $(READY)
	for page in api commands estimate scenario; do $(BIN)/python -m tests.support.$${page}_page || exit 1; done
	$(BIN)/python docs/draw_code_map.py

# Every reader against damaged files, 5,000 each: ten minutes; 2,000 random mappings;
# 20,000 spoilt files of settings and cases: ten more.
fuzz: $(READY)
	TWIN_FUZZ=5000 $(BIN)/python -m pytest tests/contract/test_malformed.py -v --durations=0
	TWIN_FUZZ=2000 $(BIN)/python -m pytest tests/contract/test_random_mappings.py -v --durations=0
	TWIN_FUZZ=20000 $(BIN)/python -m pytest tests/hostile/test_documents.py -v --durations=0
	TWIN_FUZZ=20000 $(BIN)/python -m pytest tests/hostile/test_service_border.py -v -s --durations=0
	TWIN_FUZZ=1000 $(BIN)/python -m pytest tests/twin/nodes/test_kernel.py tests/twin/pipeline tests/twin/sites -v --durations=0

# Policies against each other and the bound, as docs/measured/results.md: an hour and three quarters the first time.
results: $(READY)
	$(BIN)/python -m benchmarks.results --minutes 90

# The figures of every change, as docs/measured/reliability.md: half an hour on a machine that does nothing else.
reliability: $(READY)
	$(BIN)/python -m benchmarks.replay.reliability

# The figures of a night: kills, faults, flips and cuts times 100, a run of ten million events, the queries on it.
soak: $(READY)
	$(BIN)/python -m benchmarks.replay.reliability --effort 100 --events 10000000 --out .twin/soak.md
	$(BIN)/python -m benchmarks.replay.sql --events 10000000

# Pins with the hashes of their files, for pip install --require-hashes; a test fails while it is stale.
lock: $(READY)
	$(BIN)/python .ci/lock.py $(PIP_FIND_LINKS)

# Wheel, source archive, the bill of materials of what a user installs (CycloneDX), and their digests, in dist/.
release: $(READY)
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(BIN)/python -m build --no-isolation --outdir dist
	$(PYTHON) -m venv dist/.venv
	dist/.venv/bin/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt $(TORCH)
	dist/.venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/twin.cdx.json dist/.venv/bin/python
	rm -rf dist/.venv
	cd dist && sha256sum * > SHA256SUMS

clean:
	rm -rf .venv .twin .docs-site
