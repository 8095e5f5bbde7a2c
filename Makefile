PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SIMGLUCOSE := .venv-simglucose
STREAMS := .venv-streams
OBP := .venv-obp
DATES ?= 3
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo serve-demo browser test lint types unit verify bench diabetes streams compared peer figures outputs clean

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

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -e '.[bench]'
	touch $@

demo: $(VENV)/.run  ## three algorithms, live, on a drifting recommender; writes demo.html
	$(BIN)/tidegate demo --out demo.html

serve-demo: $(VENV)/.serve  ## the live gate: a dashboard, a gate that opens, drifts, and is taken back
	$(BIN)/python -m tidegate.experiments.serve_demo

test: lint types unit  ## lint, types and the test suite

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev $(SIMGLUCOSE)/.done
	$(BIN)/pytest -n 2 --dist worksteal

# A peer with pins on packages that must never meet ours. Where it cannot be installed, the tests that
# need it are skipped and say so.
$(SIMGLUCOSE)/.done: constraints.txt
	-$(PYTHON) -m venv $(SIMGLUCOSE) \
	  && $(SIMGLUCOSE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	    numpy pandas scipy matplotlib 'setuptools<81' \
	  && $(SIMGLUCOSE)/bin/pip install --quiet --disable-pip-version-check --no-deps simglucose==0.2.11 \
	  && touch $@

# It drives the browser that the system has, and fetches none.
browser: $(VENV)/.dev  ## the page in a real Chromium: sign in, approve, roll back
	@for one in "$$TIDEGATE_CHROMIUM" chromium chromium-browser google-chrome; do command -v "$$one" && break; done \
	  || echo "There is no Chromium, so these tests are skipped. On Debian: apt-get install chromium"
	$(BIN)/pytest tests/service/test_browser.py -rs

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

outputs: $(VENV)/.dev  ## run the tutorials and put what they print and draw into them (downloads 1 MB)
	$(BIN)/python docs/make_outputs.py --write docs/tutorials/*.md

clean:  ## remove the virtual environment and build products
	rm -rf $(VENV) $(SIMGLUCOSE) $(STREAMS) $(OBP) build dist demo.html
