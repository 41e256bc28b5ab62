# `make demo`, `make check` and `make test` do everything on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
AUDIT := .venv-audit
WORKERS ?= auto
APART := ray flower browser trackers site  # tests that need packages or programs of their own: a target each, called by .ci/run
# A test process per core; a file is run by one of them, so that its fixtures are made once. Python's compiled
# files are kept even where the environment says not to: without them each process spends seconds on importing.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 \
	--dist loadfile --no-loadscope-reorder $(foreach part,$(APART),--ignore tests/$(part))
AXE := 4.14.0

.PHONY: $(shell sed -nE 's/^([a-z]+):.*/\1/p' $(MAKEFILE_LIST))

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)  ## three methods × three seeds on digits: a table, a verdict, a page
	$(BIN)/fedkeel demo

test: lint  ## every check but those of `make thorough` (four to six minutes)
	@$(MAKE) --no-print-directory -j2 types unit

check: lint  ## format, lint, types, imports and the fast tests (a minute)
	@$(MAKE) --no-print-directory -j2 types fast

format: $(STAMP)  ## lay the code out
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)  ## layout and lint, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pre-commit validate-config

types: $(STAMP)  ## strict types
	$(BIN)/mypy

imports: $(STAMP)  ## who may import whom
	$(BIN)/python -m pytest tests/test_imports.py

fast: $(STAMP)  ## tests that are not marked slow, imports among them, and of every table of cases the first
	$(PYTEST) -m "not slow" --cases 1 --hypothesis-profile=check

unit: $(STAMP)  ## the tests of `make test`
	$(PYTEST) -m "not thorough"

thorough: $(STAMP)  ## the tests marked slow(seconds) from a second on: kills, torture, simulations, statistics and further processes (four minutes)
	$(PYTEST) -m thorough

golden: $(STAMP)  ## write the golden traces anew: a commit of its own, with its reason in the changelog
	OMP_NUM_THREADS=1 $(BIN)/python tests/golden

docs: $(STAMP)  ## write the pages of docs/ that are generated from the code; DOCS=--measure measures anew
	$(BIN)/python docs/generate.py $(DOCS)
	$(BIN)/python -m fedkeel.cli.methods
	$(BIN)/python -m fedkeel.probes

recipes: $(STAMP)  ## every table and figure of the papers, and the commands of docs/results, at the scale of seconds
	FEDKEEL_RECIPES=all $(PYTEST) --dist load tests/recipes/test_smoke.py tests/test_results.py

examples: $(STAMP)  ## the Transformer and the notebooks, with the packages they need (two minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,examples]"
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/test_docs.py -k "transformer or notebook" -rs

flower: $(STAMP)  ## a deployment with real Flower processes on loopback (at most fifteen minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,flower]"
	FEDKEEL_FLOWER=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= timeout --kill-after=30 900 \
		$(BIN)/python -m pytest tests/flower -rs

site: $(STAMP)  ## build docs/ as a site in build/site, strictly, and run its commands and snippets (four minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	$(BIN)/python -m sphinx -E -b html -W --keep-going -n -q docs build/site
	FEDKEEL_SITE=build/site timeout 600 $(BIN)/python -m pytest tests/site -n 2 --dist loadfile -rs

ray: $(STAMP)  ## the engine ray on clusters of several nodes on this machine, with the packages it needs (five minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,ray]"
	timeout 900 $(BIN)/python -m pytest tests/ray -n 2 --dist loadfile --no-loadscope-reorder -rs

browser: $(STAMP)  ## the pages in a real browser, light and dark, read by axe-core (needs chromium and npm)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,browser]"
	npm install --silent --no-save --no-audit --no-fund --prefix .browser axe-core@$(AXE)
	$(BIN)/python -m pytest tests/browser -rs

trackers: $(STAMP)  ## TensorBoard, MLflow and Weights & Biases, 250 MB of packages, and what they are given
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ".[dev,tensorboard,mlflow,wandb]"
	$(BIN)/python -m pytest tests/trackers -rs

$(AUDIT)/.installed: constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip-audit cyclonedx-bom
	touch $(AUDIT)/.installed

audit: $(AUDIT)/.installed  ## known vulnerabilities of everything that is pinned; asks the advisory database on the net
	$(AUDIT)/bin/python .ci/audit $(AUDIT)/bin/pip-audit constraints.txt

sbom: $(AUDIT)/.installed  ## everything that is pinned as a CycloneDX bill of materials: dist/sbom.json
	mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --mc-type library \
		--output-reproducible --of JSON -o dist/sbom.json
	$(AUDIT)/bin/python .ci/sbom dist/sbom.json constraints.txt

wheel: $(STAMP)  ## build the wheel and try it in a new environment
	.ci/wheel $(BIN)/python

bench: $(STAMP)  ## against a bare PyTorch loop and the peers, interleaved (45 minutes): docs/benchmark.md
	$(BIN)/python benchmarks/run.py $(BENCH)

torture: $(STAMP)  ## kills, damaged files, full disks, bad clients, wrong configurations (90 minutes): docs/torture.md
	$(BIN)/python torture/run.py $(TORTURE)

hooks: $(STAMP)  ## check before every commit and push
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type pre-push

clean:
	rm -rf $(VENV) $(AUDIT) .browser runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
