PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SIMGLUCOSE := .venv-simglucose
STREAMS := .venv-streams
DIST := .venv-dist
CORE := .venv-core
LOWEST := .venv-lowest
CORE_TESTS := arrays bootstrap commands loop mixture models plan policies record returns values
OBP := .venv-obp
FUZZ := .venv-fuzz
DATES ?= 3
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo serve-demo browser fuzz test lint types docs docs-serve reference unit dist sizes extras lowest verify bench diabetes streams compared peer figures outputs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 12

# The run-time packages alone: enough for `make demo`.
$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.serve: $(VENV)/.run
	$(PIP) -e '.[serve]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -e '.[bench]'
	touch $@

demo: $(VENV)/.run  ## three algorithms, live, on a drifting recommender; writes demo.html
	$(BIN)/tidegate demo --out demo.html

serve-demo: $(VENV)/.serve  ## the live gate: a dashboard, a gate that opens, drifts, and is taken back
	$(BIN)/python -m tidegate.experiments.serve_demo

test: lint types docs unit  ## lint, types, the documentation and the test suite

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation as a site that needs no network, in build/docs/site
	$(BIN)/python docs/make_site.py

docs-serve: docs  ## the same, shown at 127.0.0.1:8000
	$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory build/docs/site

reference: $(VENV)/.dev  ## the pages of the reference that are made from the code
	$(BIN)/python docs/make_reference.py --write

# Two tutorials begin with a download; where there is none, their tests are skipped and say so.
unit: $(VENV)/.docs $(SIMGLUCOSE)/.done
	-$(MAKE) --no-print-directory $(STREAMS)/.done
	$(BIN)/pytest -n 2 --dist worksteal

# A peer with pins on packages that must never meet ours. Where it cannot be installed, the tests that
# need it are skipped and say so.
$(SIMGLUCOSE)/.done: constraints.txt
	-$(PYTHON) -m venv $(SIMGLUCOSE) \
	  && $(SIMGLUCOSE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	    numpy pandas scipy matplotlib 'setuptools<81' \
	  && $(SIMGLUCOSE)/bin/pip install --quiet --disable-pip-version-check --no-deps simglucose==0.2.11 \
	  && touch $@

# What a release needs. All of it installs from PyPI into environments of its own.
$(DIST)/.done: constraints.txt
	test -x $(DIST)/bin/python || $(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	touch $@

dist: $(DIST)/.done  ## wheel and source archive, each tried in an empty environment per Python
	$(DIST)/bin/python release/dist.py

$(CORE)/.done: pyproject.toml constraints.txt
	rm -rf $(CORE)
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt .
	touch $@

sizes: $(CORE)/.done  ## import time, size of the core and of each extra
	$(CORE)/bin/python release/sizes.py

extras: $(CORE)/.done  ## each extra alone and all together: installed on top of the core, and tried
	$(CORE)/bin/python release/extras.py

$(LOWEST)/.done: pyproject.toml constraints-lowest.txt
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e . pytest pandas
	touch $@

# Old packages meet newer ones there, and warn of each other: that is not ours to mend.
lowest: $(LOWEST)/.done  ## the core's tests with the oldest versions that pyproject.toml allows
	$(LOWEST)/bin/pytest -W default $(CORE_TESTS:%=tests/test_%.py)

# It drives the browser that the system has, and fetches none.
browser: $(VENV)/.dev  ## the page in a real Chromium: sign in, approve, roll back
	@for one in "$$TIDEGATE_CHROMIUM" chromium chromium-browser google-chrome; do command -v "$$one" && break; done \
	  || echo "There is no Chromium, so these tests are skipped. On Debian: apt-get install chromium"
	$(BIN)/pytest tests/service/test_browser.py -rs

$(FUZZ)/.done: constraints.txt
	test -x $(FUZZ)/bin/python || $(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt 'schemathesis==4.32.5'
	touch $@

fuzz: $(VENV)/.dev $(FUZZ)/.done  ## five minutes of requests that nobody wrote, against the service's OpenAPI document
	$(BIN)/python -m tests.service.fuzz $(FUZZ)/bin/schemathesis --seconds 300

verify: $(VENV)/.dev  ## the long statistical checks: 200 runs a cell against published rates
	XLA_FLAGS= $(BIN)/pytest -m verify -s  # long runs want the passes that tests go without

bench: $(VENV)/.bench  ## speed and memory, as ratios to named peers
	$(BIN)/python benchmarks/interval.py
	$(BIN)/python benchmarks/decision.py
	$(BIN)/python benchmarks/commands.py

diabetes: $(VENV)/.bench $(SIMGLUCOSE)/.done  ## patient-days per second against simglucose, and the solvers
	$(BIN)/python benchmarks/diabetes.py

# Archives that hold data. pip asks an archive of sources for its name and version, which takes setuptools and
# NumPy, in a place of their own; nothing of it is installed.
$(STREAMS)/.done: constraints.txt benchmarks/streams.txt
	test -x $(STREAMS)/bin/python || $(PYTHON) -m venv $(STREAMS)
	$(STREAMS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt numpy setuptools
	$(STREAMS)/bin/pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --require-hashes -r benchmarks/streams.txt -d $(STREAMS)/archives
	touch $@

streams: $(VENV)/.run $(STREAMS)/.done  ## gates in real streams: errors and intervals (downloads 50 MB)
	$(BIN)/python benchmarks/streams.py build --archives $(STREAMS)/archives --out out/streams
	$(BIN)/python benchmarks/streams.py run out/streams/*.npz --dates $(DATES) --out out/streams/gates.csv

# A peer: 0.5.7 refuses Python 3.11, and this wheel installs. It asks for PyTorch, which the script does without.
$(OBP)/.done: constraints.txt
	test -x $(OBP)/bin/python || $(PYTHON) -m venv $(OBP)
	$(OBP)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  numpy pandas scipy matplotlib seaborn scikit-learn==1.9.1 pyyaml tqdm mypy_extensions
	$(OBP)/bin/pip install --quiet --disable-pip-version-check --no-deps obp==0.4.1
	touch $@

compared: $(VENV)/.run $(OBP)/.done  ## the gate, obp and an A/B test on the same drifting logs
	$(BIN)/python benchmarks/compared.py --obp $(OBP)/bin/python

peer: $(VENV)/.bench  ## one run in PyTorch against ours (installs PyTorch)
	$(PIP) -e '.[peer]'
	$(BIN)/python benchmarks/torch_peer.py

figures: $(VENV)/.run  ## the pictures of the README
	$(BIN)/python docs/figures.py

outputs: $(VENV)/.dev $(STREAMS)/.done  ## run tutorials and how-to guides; put what they print and draw into them
	$(BIN)/python docs/make_outputs.py --write $(filter-out %/service-adapters.md,$(wildcard docs/tutorials/*.md docs/how-to/*.md)) \
	  docs/explanation/problem.md README.md

clean:  ## remove the virtual environment and build products
	rm -rf $(VENV) $(SIMGLUCOSE) $(STREAMS) $(OBP) $(FUZZ) $(DIST) $(CORE) $(LOWEST) build dist demo.html
