# You need only Python 3.11 or newer and make. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install -qq --constraint constraints.txt
# More arguments for pytest or the demo: make test ARGS="-k dedup".
ARGS ?=
# The places of the tests of make test-postgres.
IN ?= tests/conformance tests/behaviour tests/adapters/postgres
# make test COV=1: with branch coverage, as .ci/run does; it takes half as long again.
COV ?=
COVERAGE := $(if $(filter-out 0,$(COV)),--cov --cov-fail-under=95)

# The stamp files have the interpreter's version in their names: another PYTHON= means a new environment.
PYTHON_VERSION := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
CREATED := $(VENV)/.created-$(PYTHON_VERSION)
RUNTIME := $(VENV)/.runtime-$(PYTHON_VERSION)
DEV := $(VENV)/.dev-$(PYTHON_VERSION)
POSTGRES_DEMO := $(VENV)/.postgres-$(PYTHON_VERSION)
DASHBOARD_DEMO := $(VENV)/.dashboard-$(PYTHON_VERSION)
DOCS := $(VENV)/.docs-$(PYTHON_VERSION)
SITE := build/site
# make demo POSTGRES=1 runs the demo on a new PostgreSQL server. The server is installed only then.
POSTGRES ?=
# make demo DASHBOARD=1 goes on, with the web page beside it.
DASHBOARD ?=
DEMO := $(if $(filter-out 0,$(POSTGRES)),$(POSTGRES_DEMO),$(RUNTIME)) $(if $(filter-out 0,$(DASHBOARD)),$(DASHBOARD_DEMO))
DEMO_ARGS := $(if $(filter-out 0,$(POSTGRES)),--postgres) $(if $(filter-out 0,$(DASHBOARD)),--dashboard)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Pyright is inside its wheel. Do not let it look for a newer version on the network, or download one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYRIGHT_PYTHON_FORCE_VERSION PYRIGHT_PYTHON_PYLANCE_VERSION PYRIGHT_PYTHON_NODEJS_WHEEL
unexport PYTHONPATH
# Tests start a hundred processes: without compiled files each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-postgres test-sqlalchemy-2.0 check format docs package soak bench bench-quick clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9.-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter. ARGS=... is passed to pytest and the demo."

demo: $(DEMO) ## Run an order pipeline in the terminal, on SQLite (with POSTGRES=1: on PostgreSQL; DASHBOARD=1: with the web page, until Ctrl-C)
	@$(BIN)/python examples/demo.py $(DEMO_ARGS) $(ARGS)

test: $(DEV) ## Run the tests on six processes (half of the time, a test waits); COV=1 measures branch coverage and fails under 95 %
	$(BIN)/python -m pytest -n 6 --dist worksteal -m "not soak" $(COVERAGE) $(ARGS)

check: $(DEV) ## Check format, lint, types (mypy and pyright) and import directions
	$(BIN)/python tools/make_sync.py --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(DEV) ## Write generated code, format, and fix what ruff can fix
	$(BIN)/python tools/make_sync.py
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS) ## Build the documentation as a site, in build/site/html
	@$(BIN)/python -m tools.site.stage $(SITE)/pages
	@rm -rf $(SITE)/html
	@PYTHONHASHSEED=0 $(BIN)/python -m sphinx -q --fail-on-warning -j auto -c tools/site -d $(SITE)/cache $(SITE)/pages $(SITE)/html
	@rm -f $(SITE)/html/.buildinfo; cp $(SITE)/pages/_extra/* $(SITE)/html
	@$(BIN)/python -m tools.site.check $(SITE)/html

package: $(DEV) ## Build the sdist and the wheel in dist, and check them
	@rm -rf dist
	@$(BIN)/python -m hatchling build
	@$(BIN)/python -m pytest -q tests/test_package.py

soak: $(DEV) ## Run the long tests: many repetitions, many rows, PostgreSQL 14 to 17
	@$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS) || { \
		code=$$?; [ $$code -eq 5 ] && echo "There are no soak tests yet." || exit $$code; }
	@for version in 14 15 16 17; do $(MAKE) --no-print-directory test-postgres VERSION=$$version || exit; done

bench: $(DEV) ## Run the whole benchmark: all libraries, all rows
	@$(BIN)/python -m bench $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m bench.latency)

bench-quick: $(DEV) ## Run a two-minute benchmark: queuert, pgqueuer and plain SQL
	@$(BIN)/python -m bench --quick $(ARGS)

test-postgres: $(DEV) ## Run the tests that ask PostgreSQL with another version of its server: make test-postgres VERSION=14
	@programs=$$(tools/postgres_server $(VERSION)) || exit; \
	QUEUERT_TEST_POSTGRES_BIN=$$programs $(BIN)/python -m pytest -n 6 --dist worksteal -m "postgres and not soak" $(IN) $(ARGS)

test-sqlalchemy-2.0: $(DEV) ## Run the SQLAlchemy tests with SQLAlchemy 2.0
	@$(BIN)/python -m pip install -qq --upgrade --target $(VENV)/sqlalchemy-2.0 "sqlalchemy[asyncio]>=2.0,<2.1"
	PYTHONPATH=$(VENV)/sqlalchemy-2.0 $(BIN)/python -m pytest -m "not soak" tests/adapters/sqlalchemy tests/matrix \
		tests/test_web_examples.py tests/conformance/test_sqlalchemy.py $(ARGS)

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) .venv-* .bench build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "queuert needs Python 3.11 or newer, but '$(PYTHON)' is $(or $(PYTHON_VERSION),not a Python interpreter)." \
			"Choose another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV) with Python $(PYTHON_VERSION) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(RUNTIME): $(CREATED) pyproject.toml constraints.txt requirements/demo.txt
	@echo "Installing the package ..."
	@$(PIP_INSTALL) --requirement requirements/demo.txt
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@touch $@

$(POSTGRES_DEMO): $(RUNTIME) requirements/postgres.txt
	@echo "Installing PostgreSQL and psycopg ..."
	@$(PIP_INSTALL) --requirement requirements/postgres.txt
	@touch $@

$(DASHBOARD_DEMO): $(RUNTIME) requirements/dashboard.txt
	@echo "Installing what the dashboard needs ..."
	@$(PIP_INSTALL) --requirement requirements/dashboard.txt
	@touch $@

$(DOCS): $(DEV) requirements/docs.txt
	@echo "Installing the tools for the documentation ..."
	@$(PIP_INSTALL) --requirement requirements/docs.txt
	@touch $@

$(DEV): $(RUNTIME) requirements/dev.txt
	@echo "Installing the tools for tests and checks ..."
	@$(PIP_INSTALL) --requirement requirements/dev.txt
	@touch $@
