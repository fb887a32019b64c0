# Every target that needs Python packages creates .venv first; nothing but Python >= 3.10 and make is assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: costs reference efficiency help setup demo test test-all test-commands test-parts test-of-readme test-of-docs check notebooks docs serve bench testbed reproduce format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv and install the project with its tools

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# Python compiles a module when it is first imported; to do it for all of them here takes a minute or two.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)  ## the quick start: policies on real books with the shipped model, and an HTML report
	$(BIN)/python -m harness

# Two halves of about equal length side by side, one thread each: faster than two threads, as most tests are small.
COMMANDS := tests/api tests/cli tests/harness tests/results_site tests/workers $(wildcard tests/test_*.py)
PARTS    := $(filter-out tests/__pycache__ $(COMMANDS),$(patsubst %/,%,$(wildcard tests/*/)))

test: $(READY)  ## format check, lint, type check, tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check test-commands test-parts

test-commands: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(COMMANDS)

test-parts: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARTS)

test-all: test  ## and every command of README and docs as it stands
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-of-readme test-of-docs

test-of-readme test-of-docs: test-of-%: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m whole tests/documented/test_commands_of_$*.py --durations=12

check: $(READY)  ## format check, lint and type check only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

SCALE  ?= mini
# Processes of one thread are faster on the small model than threads of one process; on GPUs there is one for each.
WORKERS := $(if $(filter mini,$(SCALE)),launcher.workers=2)
SWEEP   := scale=$(SCALE) summary=false launcher=local $(WORKERS) $(if $(MODEL),model=$(MODEL))

plan-%: $(READY)  ## plan-<paper>: what its sweep would feed and hold, before anything runs (MODEL=…, SCALE=full)
	$(BIN)/python -m harness plan +exp=$*/all scale=$(SCALE) $(if $(MODEL),model=$(MODEL))

# A sweep that ends with 2 holds cells that cannot be run here; the report says which and why.
reproduce-%: $(READY)  ## reproduce-<paper>: its sweep and its report, on the testbed at scale=mini (MODEL=…, SCALE=full)
	$(BIN)/python -m harness +exp=$*/all $(SWEEP) || test $$? -eq 2
	$(BIN)/python -m harness figures paper=$* scale=$(SCALE) $(if $(MODEL),model=$(MODEL))
	@$(MAKE) --no-print-directory $(if $(filter mini,$(SCALE)),costs) report-$*

report-%: $(READY)  ## report-<paper>: its tables, figures and verdicts from the rows that are there (SCALE=full)
	$(BIN)/python -m harness report paper=$* scale=$(SCALE)

reproduce: $(READY)  ## all five papers and what none of them shows, as one sweep; cells that they share run once
	$(BIN)/python -m harness +exp=papers $(SWEEP) || test $$? -eq 2
	$(BIN)/python -m harness figures paper=all scale=$(SCALE) $(if $(MODEL),model=$(MODEL))
	@$(MAKE) --no-print-directory $(if $(filter mini,$(SCALE)),costs) report-all

reference: $(READY)  ## keep what make reproduce gave under version control, in results/reference
	$(BIN)/python -m harness store pack --to results/reference
	rm -rf results/reference/efficiency results/reference/diagnostics
	cp -r results/efficiency results/diagnostics results/reference/
	$(BIN)/python -m harness report paper=all results_dir=results/reference
	rm -f results/reference/reports/*/*.png results/reference/reports/*/*.svg  # the pages hold them
	rm -f results/reference/reports/*/.made_from  # which is of this machine and this day

costs: $(READY)  # the costs that the reports show: measured where they have not been
	@ls results/efficiency/*.parquet > /dev/null 2>&1 || $(BIN)/python -m scripts.efficiency

notebooks: $(READY)  ## execute the notebooks again and store their outputs (a minute)
	$(BIN)/python -m scripts.notebooks

docs: $(READY)  ## the documentation as a site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

serve: $(READY)  ## the results site of results/ (leaderboard, claims, survivors) at http://localhost:8000 (PORT=…)
	$(BIN)/python -m harness site
	$(BIN)/python -m http.server $(or $(PORT),8000) --bind 127.0.0.1 --directory results/site

bench: $(READY)  ## rates against the roof, the straightforward loop and the sum of cells (about 10 minutes)
	$(BIN)/python -m scripts.bench

efficiency: $(READY)  ## costs of the papers' methods on this machine, for their reports (3 minutes)
	$(BIN)/python -m scripts.efficiency

# Tensors come and go at every step: glibc keeps their memory instead of asking the system for it anew each time.
testbed: export MALLOC_TOP_PAD_ := 268435456
testbed: export MALLOC_TRIM_THRESHOLD_ := 17179869184
testbed: export MALLOC_MMAP_THRESHOLD_ := 4294967296
testbed: $(READY)  ## train the testbed from scratch (three hours; resumes), SMOKE=1: a tiny one (3 minutes)
	$(BIN)/python -m scripts.train_testbed $(if $(SMOKE),--config-name smoke)

format: $(READY)  ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment and tool caches (results stay)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache *.egg-info
