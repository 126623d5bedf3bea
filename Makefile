# Everything a person or CI runs. `make serve` and `make test` need Python 3.11+, pip and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links -c requirements/constraints.txt

ARGS ?=

# Set on some machines. Every process that a test starts would then compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup serve test test-all coverage planted-bugs test-pgbouncer deploy-check deploy-run fault model model-planted model-calls availability simulation dashboard soak fuzz browser mcp-servers openid-provider screenshots bench bench-smoke bench-peers costs growth check audit sbom format openapi client vendor lock clean

setup: .venv/.runtime

serve: .venv/.runtime
	$(BIN)/qd serve

# More processes than cores: many tests wait for timers and other processes.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal

# Four minutes on two quiet cores (docs/decisions/0042). Installs nothing on the system.
test: .venv/.dev
	$(PYTEST) -m "not long" $(ARGS)

# Those of `make test` and the long ones: every fault, some planted bugs, every console page, docs.
test-all: .venv/.dev .venv/.generator mcp-servers openid-provider
	$(PYTEST) -m "not planted" $(ARGS)

# Plants each bug of tests/fleet/planted_bugs.py, one after another, and checks that a fault run catches it. About five minutes.
planted-bugs: .venv/.dev
	$(BIN)/python -m pytest tests/fleet/test_faults.py -k planted $(ARGS)

# The tests of `make test` with coverage of all processes, which doubles their time.
coverage: .venv/.dev
	$(PYTEST) -m "not long" --cov --cov-report=html:build/coverage --cov-report=term:skip-covered $(ARGS)

# Injects faults into a running Quarterdeck for a minute and checks every promise. `make fault ARGS="--seconds 1200 --seed 7"`.
fault: .venv/.dev
	$(BIN)/python -m tests.fleet.fault_command $(ARGS)

# Random sequences of everything that a session can do, for MINUTES (default 5). Each promise that is broken is written to build/model
# as a script of curl commands. `make model MINUTES=120` before a release; `make model MODEL_SEED=7` repeats a run.
MINUTES ?= 5
model: .venv/.dev
	$(BIN)/python -m tests.model.features.command --minutes $(MINUTES) $(if $(MODEL_SEED),--seed $(MODEL_SEED)) $(ARGS)

# Plants each bug of tests/model/features/planted.py, one after another, and prints how long it takes to find it. About ten minutes.
model-planted: .venv/.dev
	$(BIN)/python -m tests.model.features.planted $(ARGS)

# Random sequences of calls by every kind of caller, compared with a model of the API, for about a quarter of an hour. A failure prints
# the command that repeats it.
model-calls: export MODEL_SEQUENCES ?= 300
model-calls: .venv/.dev
	$(BIN)/python -m pytest tests/model/test_model.py

# All tests with generated input, with TIMES as much of it as in `make test-all` and another start each time.
TIMES ?= 10
fuzz: .venv/.dev
	QUARTERDECK_FUZZ_TIMES=$(TIMES) $(PYTEST) --timeout $$((300 * $(TIMES))) $$(grep -lE "hypothesis|tests.fuzzing" -r tests --include "test_*.py")

# Tests of the API and of workers with PgBouncer between these and PostgreSQL, in about five minutes. Needs pgbouncer.
test-pgbouncer: .venv/.dev
	QUARTERDECK_TEST_PGBOUNCER=1 $(PYTEST) -m "not long" tests/contract tests/fault $(ARGS)

# Reads the files in deploy/ with Helm, the schemas of Kubernetes, hadolint, podman-compose and systemd-analyze. Installs 300 MB first.
deploy-check: .venv/.deploy
	.venv/deploy/bin/python tests/deploy/check.py

# Starts the compose file and the systemd units in containers, by the commands of docs/run/install.md. About 15 minutes at first,
# then 7. Needs root, Podman and, without a registry, debootstrap. `make deploy-run ARGS=compose` or ARGS=systemd runs one of them.
deploy-run: .venv/.dev .venv/.deploy
	$(BIN)/python -m tests.deploy.run $(ARGS)

# Chromium and axe-core for the console tests, as root on Debian. Without them these tests are skipped.
browser:
	tests/console/install.sh

# MCP servers from npm, for the tests that connect to them. Without npm these tests are skipped.
mcp-servers:
	tests/mcp/install.sh

# An OpenID provider from npm, for the tests that sign in at it. Without npm these tests are skipped.
openid-provider:
	tests/openid/install.sh

# The pictures of docs/use/console.md, anew. About two minutes.
screenshots: .venv/.dev browser
	$(BIN)/python -m tests.console.screenshots

# Against the ceilings of bench/README.md, in about a quarter of an hour. `make bench ARGS="--only submit"`, ARGS=--list.
bench: .venv/.dev
	bench/install.sh
	$(BIN)/python -m bench.run $(ARGS)

# Has a ratio halved since bench/stored.json was written? Under two minutes. ARGS=--store writes it anew.
bench-smoke: .venv/.dev
	bench/install.sh
	$(BIN)/python -m bench.smoke $(ARGS)

# Comparable systems beside Quarterdeck, in about ten minutes; installs them first, which takes some more. Needs wrk.
bench-peers: .venv/.dev
	bench/install.sh
	$(BIN)/python -m bench.peers.run $(ARGS)

# What the most expensive single requests cost in processor time and memory, in about five minutes. Needs Linux.
# `make costs ARGS="--markdown build/costs.md"` writes the table of SECURITY.md.
costs: .venv/.dev
	$(BIN)/python -m bench.costs.run $(ARGS)

# How much each table grows for a run, and what retention costs: the figures of docs/run/retention.md. About two minutes.
growth: .venv/.dev
	$(BIN)/python -m bench.growth $(ARGS)

# Outages of the database and rolling restarts under load, about five minutes. ARGS="--help" lists the options.
availability: .venv/.dev
	$(BIN)/python -m tests.fleet.availability $(ARGS)

# Does every panel of the Grafana dashboard show something? A real Prometheus and a small load, under a minute.
dashboard: .venv/.dev
	$(BIN)/python -m tests.fleet.dashboard

# Nine hosts in network namespaces: hosts cut off and lost, database failover under load, costs by host. About eight minutes.
# Needs Linux, root, iproute2 and util-linux. ARGS="--help" lists the options.
simulation: .venv/.dev
	$(BIN)/python -m tests.simulation.command $(ARGS)

# Memory and open files at half of the peak load, for half an hour. ARGS="--minutes 5" for less.
soak: .venv/.dev
	$(BIN)/python -m tests.fleet.soak $(ARGS)

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	tests/console/lint/run.sh

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# After a change to the API that is meant: the diff of the snapshot is the change that clients will see.
openapi: .venv/.dev
	$(BIN)/python -m tests.contract.openapi_snapshot

# After the same change, and after a change of an asynchronous module of the Python client: its methods are written from the
# route table, its synchronous modules from the asynchronous ones.
client: .venv/.dev
	$(BIN)/python -m codegen.client

# Copies the libraries of the console and the API reference from npm, in the versions of codegen/vendor/package-lock.json.
vendor:
	codegen/vendor/update.sh

# Adds and removes packages; versions stay as they are locked. `make lock ARGS=--upgrade` takes newer ones.
lock: .venv/.dev
	$(LOCK) $(ARGS) --extra server --extra redis --extra otel -o requirements/runtime.lock pyproject.toml requirements/build.in
	$(LOCK) $(ARGS) --extra server --extra redis --extra otel --extra groq -c requirements/runtime.lock -o requirements/dev.lock pyproject.toml requirements/dev.in
	$(LOCK) $(ARGS) -o requirements/client-generator.lock requirements/client-generator.in
	$(LOCK) $(ARGS) -o requirements/deploy-check.lock requirements/deploy-check.in

# Needs the network. Not a part of CI: the result changes without a change here (docs/decisions/0038). `--strict` fails for
# packages that the advisory service does not know; without it they are skipped and the audit passes.
# `make audit ARGS="--ignore-vuln ID"` leaves out an advisory.
audit: .venv/.dev
	$(BIN)/python -m pip_audit --strict --disable-pip --require-hashes --progress-spinner off $(ARGS) -r requirements/runtime.lock -r requirements/dev.lock

# A CycloneDX document of the packages in runtime.lock. The same lock gives the same bytes.
sbom: .venv/.dev
	@mkdir -p build
	$(BIN)/python -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json requirements/runtime.lock

clean:
	rm -rf .venv build dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Quarterdeck needs Python 3.11 or newer; name one with PYTHON=python3.12 make …"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.runtime: requirements/runtime.lock pyproject.toml | .venv/bin/python
	@echo "Preparing .venv. This takes a minute or two, once."
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/runtime.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: requirements/dev.lock .venv/.runtime
	$(PIP) install --quiet --no-compile --require-hashes --no-deps -r requirements/dev.lock
	@touch $@

# An environment of its own: openapi-python-client needs an older typer than qd.
.venv/.generator: requirements/client-generator.lock | .venv/bin/python
	$(PYTHON) -m venv .venv/generator
	.venv/generator/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --require-hashes --no-deps -r requirements/client-generator.lock
	@touch $@

.venv/.deploy: requirements/deploy-check.lock | .venv/bin/python
	$(PYTHON) -m venv .venv/deploy
	.venv/deploy/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --require-hashes --no-deps -r requirements/deploy-check.lock
	@touch $@
