# Every target prepares .venv by itself; nothing outside the checkout is touched.
PRESET ?= default
OUT ?= results/$(PRESET)

# OpenBLAS with its own threads makes small factorisations a hundred times slower.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install sweep sweep-smoke report test test-slow test-browser test-bounds picture lint figures bench clean

help: ## this list
	@echo "usage: make TARGET [PRESET=smoke|default|paper|phase|tpu] [OUT=DIR]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target what; do printf '  %-12s %s\n' "$$target" "$$what"; done

install: $(READY) ## make .venv with everything the other targets need

sweep: $(READY) ## run a sweep (under 5 minutes on 2 cores), then draw its figures
	$(RUN) -m experiments.sweep --preset $(PRESET) --out $(OUT)
	$(RUN) -m experiments.theory.edges --out $(dir $(OUT))edges
	$(RUN) -m experiments.figures $(OUT)

sweep-smoke: $(READY) ## the smallest sweep (under a minute)
	$(RUN) -m experiments.sweep --preset smoke --out results/smoke
	$(RUN) -m experiments.figures results/smoke

report: $(READY) ## one page of all results on disk, results/report.html (under 20 s)
	$(RUN) -m experiments.theory.edges --out results/edges
	$(RUN) -m experiments.theory.watch --out results/watch
	$(RUN) -m experiments.report results --out results

test: $(READY) ## the test-suite
	$(RUN) -m pytest -n 2 --dist loadfile

test-slow: $(READY) ## the tests that take minutes, clusters among them
	$(RUN) -m pip install --quiet -e '.[test,cluster]'
	$(RUN) -m pytest -m slow

test-browser: $(READY) ## the report in a headless Chromium; npm brings axe-core
	$(RUN) -m pip install --quiet -e '.[test,browser]'
	$(RUN) -m pytest -m browser

LOWEST := build/lowest
BOUNDS := tests/outcome/test_chain.py tests/sweep/test_store.py
test-bounds: $(READY) ## a part of the tests and a sweep, at the lowest versions and here
	$(RUN) -m venv --clear $(LOWEST)
	$(RUN) -m tests.lowest > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/constraints.txt \
		-e . beartype hypothesis pytest quadprog
	for python in $(LOWEST)/bin/python $(RUN); do \
		$$python -m pytest -m bounds -o filterwarnings= $(BOUNDS) && \
		$$python -m experiments.sweep --preset smoke --no-resume --out $(LOWEST)/smoke || exit 1; \
	done

picture: $(READY) ## the README's picture of the report, after make sweep report
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[test,browser]'
	$(RUN) -m tests.browser.chromium results/report.html docs/report.png

lint: $(READY) ## style, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

figures: $(READY) ## draw the figures of a finished sweep again
	$(RUN) -m experiments.figures $(OUT)

bench: $(READY) ## all benchmarks, in their quick form, and one table of them
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[test,benchmark]'
	$(RUN) -m experiments.benchmarks.table

clean: ## remove the environment and caches; results stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .jax_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# PYTHON=… chooses the interpreter; else the first one found that is new enough. Where
# Python came without ensurepip, the interpreter's own pip fills the environment.
$(READY): pyproject.toml
	@if [ ! -x $(RUN) ]; then \
		for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
			$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
			python=; \
		done; \
		if [ -z "$$python" ]; then \
			echo "no Python of 3.11 or later found; install one, or name it: make PYTHON=…" >&2; exit 2; \
		fi; \
		echo "making $(VENV) with $$($$python --version)"; \
		if ! $$python -m venv $(VENV) >/dev/null 2>&1; then \
			rm -rf $(VENV); \
			$$python -m venv --without-pip $(VENV) && \
			$$python -m pip --python $(RUN) install --quiet pip || { rm -rf $(VENV); \
			echo "$$python has neither ensurepip nor pip: install your system's python3-venv package" >&2; exit 2; }; \
		fi; \
	fi
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	@touch $@
