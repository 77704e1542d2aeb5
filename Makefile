# Two commands for a fresh machine: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STORE ?= ragmeter-store
PROCESSES ?= 2
# Compiled files are kept: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo experiments-small test fast slow lint docs perf soak gpu gpu-real integrations install clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m compileall -q -j $(PROCESSES) benchmarks judges leaderboard methods ragmeter results tools
	touch $(STAMP)

demo: install  ## what the four approaches gain, as they ship: at most three minutes
	env -u OMP_NUM_THREADS $(BIN)/ragmeter demo --store $(STORE)

experiments-small: install  ## over training seeds, hours; then all tiny profiles; stopped, it resumes; docs/results.md
	$(BIN)/python -m tools.measure --store $(STORE)
	$(BIN)/python -m tools.tiny_profiles $(STORE)/tiny

test: lint fast slow  ## what CI runs

fast: install
	$(BIN)/python -m pytest -m "not slow and not soak and not gpu" -n $(PROCESSES) --dist worksteal $(if $(filter 1,$(PROCESSES)),--cpu-limit 1.5)

slow: install
	$(BIN)/python -m pytest -m "slow" -n $(PROCESSES) --dist worksteal

lint: install  ## linter, formatter, types, import contract, references of docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.references

docs: install  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; for the search: python -m http.server -d site"

perf: install  ## ratios against named alternatives
	$(BIN)/python -m perf

integrations: install  ## LangChain, LlamaIndex, Haystack, W&B and MLflow, in an environment of their own
	$(BIN)/python -m tools.integrations

soak: install  ## what takes hours: large and long cases, then every property over 500 examples
	$(BIN)/python -m pytest -m "soak"
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "hypothesis and not soak and not gpu" -n $(PROCESSES)

gpu: install
	$(BIN)/python -m pytest -m "gpu"

gpu-real: install
	$(BIN)/python -m perf.gpu_real

clean:
	rm -rf $(VENV) build dist site
