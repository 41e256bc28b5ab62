# `make demo` and `make test` do everything on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types unit golden docs bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)  ## three methods × three seeds on digits: a table, a verdict, a page
	$(BIN)/fedkeel demo

test: lint types unit  ## every check

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

golden: $(STAMP)  ## write the golden traces anew: a commit of its own, with its reason in the changelog
	OMP_NUM_THREADS=1 $(BIN)/python tests/golden

docs: $(STAMP)  ## write the pages of docs/ that are generated from the code
	$(BIN)/python docs/generate.py

bench: $(STAMP)  ## against a bare PyTorch loop and the peers, interleaved (35 minutes): docs/benchmark.md
	$(BIN)/python benchmarks/run.py $(BENCH)

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
