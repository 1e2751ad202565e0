# Every target prepares .venv by itself; nothing outside the checkout is touched.
PRESET ?= default
OUT ?= results/$(PRESET)
DEVICE ?= cpu

# OpenBLAS with its own threads makes small factorisations a hundred times slower.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

VENV := .venv
RUN := $(VENV)/bin/python
# One stamp per extra of pyproject.toml: a target installs what it needs, and no more.
EXPERIMENTS := $(VENV)/.ready-experiments
TEST := $(VENV)/.ready-test
LINT := $(VENV)/.ready-lint

.DEFAULT_GOAL := help
.PHONY: help install sweep sweep-smoke report paper text networks benchmark cluster falsify test test-machines test-newest test-slow test-browser test-bounds test-dist dist colab tutorial docs lint figures bench clean asked

help: ## this list
	@echo "usage: make TARGET [PRESET=smoke|default|paper|phase|tpu] [OUT=DIR]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target what; do printf '  %-13s %s\n' "$$target" "$$what"; done

install: $(TEST) $(LINT) ## make .venv for every target but bench, browsers and clusters

sweep: $(EXPERIMENTS) ## run a sweep (under 5 minutes on 2 cores), then draw its figures
	$(RUN) -m experiments.sweep --preset $(PRESET) --out $(OUT)
	$(RUN) -m experiments.figures $(OUT)

sweep-smoke: $(EXPERIMENTS) ## the smallest sweep (a minute, most of it compiling)
	$(RUN) -m experiments.sweep --preset smoke --out results/smoke
	$(RUN) -m experiments.figures results/smoke

report: $(EXPERIMENTS) ## results/report.html: one page of all results on disk (2 minutes)
	$(RUN) -m experiments.report results --out results

# TRAIN=FILE TEST=FILE (and NAMED=imdb_reviews if the files are IMDB's) or DATASET=imdb_reviews.
REVIEWS := $(if $(TRAIN),--train "$(TRAIN)" --test "$(TEST)") $(if $(NAMED),--named $(NAMED)) \
	$(if $(DATASET),--dataset $(DATASET))
paper: $(EXPERIMENTS) text ## run the paper item by item, then write that page (under 10 minutes; TRAIN=… TEST=… NAMED=imdb_reviews for all)
	$(RUN) -m experiments.paper $(REVIEWS)

text: $(VENV)/.ready-text $(VENV)/.ready-networks ## packages that programs on reviews, and networks, need besides
networks benchmark cluster falsify: %: $(VENV)/.ready-%

PYTEST := $(RUN) -m pytest -n 2 --dist loadfile
test: $(TEST) ## the test-suite
	$(PYTEST)

# Compiled as a user's programs are, where the suite else optimises nothing.
MACHINES := tests/trial tests/ties tests/flow/test_cls_flow.py tests/margin/test_limit.py \
	tests/margin/test_certificate.py tests/sweep/test_chunks.py tests/problem/test_constructors.py \
	tests/falsify
test-machines: $(TEST) ## what integrates or certifies, for three sets of vector instructions
	XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 $(PYTEST) $(MACHINES)
	XLA_FLAGS=--xla_cpu_max_isa=AVX2 $(PYTEST) $(MACHINES)
	XLA_FLAGS= $(PYTEST) $(MACHINES)

NEWEST := build/newest
test-newest: ## the test-suite with the newest Python of this machine and the newest JAX
	@for python in $(or $(PYTHON),python3.15 python3.14 python3.13 python3.12 python3); do \
		$$python -c '$(NEW_ENOUGH)' 2>/dev/null && break; python=; \
	done; $${python:?a Python of 3.11 or later is needed} -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[test]'
	$(NEWEST)/bin/python -m pip list | grep -E '^(jax|jaxlib|numpy|flax) '
	$(NEWEST)/bin/python -m pytest -n 2 --dist loadfile

test-slow: $(TEST) $(VENV)/.ready-cluster ## the tests that take minutes, clusters among them
	$(RUN) -m pytest -m slow

test-browser: $(VENV)/.ready-browser ## the page of results in a headless Chromium
	$(RUN) -m pytest -m browser

LOWEST := build/lowest
BOUNDS := tests/trial/test_chain.py tests/sweep/test_store.py
test-bounds: $(TEST) ## a part of the tests and a sweep, at the lowest versions and here
	$(RUN) -m venv --clear $(LOWEST)
	$(RUN) -m tests.lowest > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/constraints.txt \
		-e '.[experiments]' beartype hypothesis pytest quadprog
	for python in $(LOWEST)/bin/python $(RUN); do \
		$$python -m pytest -m bounds -o filterwarnings= $(BOUNDS) && \
		$$python -m experiments.sweep --preset smoke --no-resume --out $(LOWEST)/smoke || exit 1; \
	done

dist: $(VENV)/.ready-dist ## a source archive and a wheel, in dist/
	rm -rf dist
	$(RUN) -m build --outdir dist

INSTALLED := build/installed
test-dist: dist ## that wheel alone in an environment runs the program of README
	$(RUN) -m venv --clear $(INSTALLED)
	$(INSTALLED)/bin/python -m pip install --quiet dist/*.whl
	$(INSTALLED)/bin/python -P -c 'import jaxselect; print(jaxselect.__file__)'
	$(INSTALLED)/bin/python -P -m doctest README.md

colab: $(VENV)/.python ## a notebook for Colab that carries the project, in build/ (DEVICE=cpu|gpu|tpu)
	$(RUN) docs/colab.py $(DEVICE)

tutorial: $(VENV)/.ready-jupyter ## the tutorial, in JupyterLab
	$(RUN) -m jupyterlab experiments/tutorial.ipynb

docs: $(VENV)/.ready-docs ## the site of documents, build/site/index.html
	$(RUN) -m mkdocs build --strict --quiet --config-file .mkdocs.yml

lint: $(LINT) ## style, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

figures: $(EXPERIMENTS) ## draw the figures of a finished sweep again
	$(RUN) -m experiments.figures $(OUT)

bench: $(VENV)/.ready-benchmark ## the benchmarks in their quick form; make report shows them
	$(RUN) -m experiments.benchmarks.flow --quick
	$(RUN) -m experiments.benchmarks.growth --quick
	$(RUN) -m experiments.benchmarks.max_margin --quick

clean: ## remove the environment and caches; results stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .jax_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready-%: pyproject.toml $(VENV)/.python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

# PYTHON=… names the interpreter, and .venv is made anew where it is of another; else the
# first one found that is new enough makes it. Where Python came without ensurepip, the
# interpreter's own pip fills the environment.
NEW_ENOUGH := import sys; print(sys.version); sys.exit(sys.version_info < (3, 11))
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
$(VENV)/.python: $(if $(PYTHON),asked)
	@for python in $(PYTHONS); do \
		version=$$($$python -c '$(NEW_ENOUGH)' 2>/dev/null) && break; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		for python in $(PYTHON); do $$python -c '$(NEW_ENOUGH)'; done; \
		echo "none of these runs as a Python of 3.11 or later: $(PYTHONS); install one, or name it: make PYTHON=…" >&2; exit 2; \
	fi; \
	if [ -e $@ ] && [ "$$(cat $@)" = "$$version" ]; then exit; fi; \
	echo "making $(VENV) with Python $$version"; \
	rm -rf $(VENV); \
	if ! $$python -m venv $(VENV) >/dev/null 2>&1; then \
		rm -rf $(VENV); \
		$$python -m venv --without-pip $(VENV) && \
		$$python -m pip --python $(RUN) install --quiet pip || { rm -rf $(VENV); \
		echo "$$python has neither ensurepip nor pip: install your system's python3-venv package" >&2; exit 2; }; \
	fi; \
	echo "$$version" > $@
