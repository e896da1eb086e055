# Everything runs in the project's own environment (.venv), which each target makes or brings up to date first.
# Only make, a POSIX shell and Python 3.11+ are needed; Node only to change the widgets' TypeScript.

VENV ?= .venv
export VENV
PY := $(VENV)/bin/python
PROMPT ?= Write one sentence about the sea.
export PROMPT
DEMO_ARGS ?= --temperature 0.8 --top-k 40 --top-p 0.9 --seed 4
LAB_ARGS ?=
PYTEST_ARGS ?=
CHECK_ARGS ?=
BENCH_ARGS ?=
NOTEBOOK ?= my_notebooks/00_start.ipynb

# Jupyter refuses to run as root unless told; its news and update questions would be the first thing that a newcomer sees
ROOT_ARG := $(if $(filter 0,$(shell id -u)),--allow-root)
QUIET_LAB := --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate
# defaults of our own, such as keeping pictures in saved notebooks; what a person sets in JupyterLab stays and wins
LAB_SETTINGS := --LabApp.app_settings_dir=$(CURDIR)/tools/lab_settings

.DEFAULT_GOAL := help
.PHONY: help env-lab env-dev model lab demo chromium test test-fast check bench bundle pictures notebooks format binder clean clean-all

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

env-lab:
	@sh tools/setup_env.sh lab

env-dev:
	@sh tools/setup_env.sh dev

model: env-lab ## fetch and convert the default model, once
	@$(PY) -m genai_lab.workbench.default_model

lab: model ## open JupyterLab on your copy of the first notebook, my_notebooks/ (LAB_ARGS=--no-browser)
	@$(PY) -m tools.my_notebooks
	JUPYTER_PREFER_ENV_PATH=1 $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/$(NOTEBOOK) $(ROOT_ARG) $(QUIET_LAB) $(LAB_SETTINGS) $(LAB_ARGS)

demo: model ## answer PROMPT in the terminal and write trace.html (DEMO_ARGS= for the likeliest tokens)
	@$(PY) -m genai_lab.workbench.cli demo $(DEMO_ARGS) -- "$$PROMPT"

chromium: env-dev
	@$(PY) -m tools.chromium

test: env-dev chromium ## all tests (PYTEST_ARGS='-k ribbon')
	$(PY) -m pytest $(PYTEST_ARGS)

test-fast: env-dev ## the tests that need no browser, notebook, oracle or patience
	$(PY) -m pytest -m "not browser and not notebook and not og and not slow" $(PYTEST_ARGS)

check: env-dev ## the gate: format, lint, types, imports, docs, notebooks, widgets
	@$(PY) -m tools.check $(CHECK_ARGS)

bench: env-dev ## measure against onnxruntime-genai, write benchmarks/RESULTS.md
	$(PY) -m benchmarks $(BENCH_ARGS)

bundle: env-dev ## build the widgets' bundle (needs Node 20 or newer)
	$(PY) -m tools.frontend

pictures: env-dev chromium ## photograph a real run for the README
	@$(PY) -m tools.pictures

notebooks: env-dev ## write every .ipynb from its .py source
	@$(PY) -m tools.notebooks build

format: env-dev notebooks ## put the code into its form
	@$(PY) -m ruff check --fix --quiet . ; $(PY) -m ruff format .
	@if [ -d widgets/node_modules ]; then cd widgets && npm run --silent format; fi

binder: env-dev ## replay what mybinder.org does with the last commit
	$(PY) -m tools.binder_replay

clean: ## remove products and caches
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find genai_lab tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## ... and the environments
	rm -rf $(VENV) widgets/node_modules
