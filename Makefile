# Everything runs in .venv, which is made once; `make PYTHON=python3.13 test` picks its Python.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
OUT := reports/out
WHEELS ?= $(LAYOUT_ORACLE_WHEELS)
SUBJECT ?= store-sm100

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help verdict test test-fast test-wheels test-gpu conformance published lint numerics docs bench clean

help:
	@echo "make verdict  run the main job; leaves $(OUT)/verdict.json and verdict.md"
	@echo "make test     run every test"
	@echo "make test-fast     install what native code needs, and run its tests"
	@echo "make conformance SUBJECT=WRITER  try the promises of a store (cases/README.md)"
	@echo "make test-gpu run what needs an NVIDIA GPU, and measure the store's bandwidth"
	@echo "make test-wheels WHEELS=DIR  run the tests that read published wheels"
	@echo "make published WHEELS=DIR    write reports/published anew"
	@echo "make lint     check style (ruff) and types (mypy --strict)"
	@echo "make bench    measure speed, and install what native code needs; DOCS=docs/performance.md"
	@echo "make numerics judge the stored values over ten million groups"
	@echo "make docs     generate docs/numerics.md; WRITERS=... adds subjects"
	@echo "make clean    remove $(VENV), $(OUT) and caches"

verdict: $(VENV)/runtime.stamp
	$(RUN) harness.py verdict --output $(OUT)

test: $(VENV)/test.stamp
	$(RUN) -m pytest -n auto

# Last, since what it installs stays: every other test is meant to pass without.
test-fast: $(VENV)/test.stamp
	$(RUN) -m pip install --quiet --editable '.[fast]'
	$(RUN) -m pytest -n auto tests/compiled tests/test_tier_option.py tests/test_verdict.py

test-wheels: $(VENV)/test.stamp
	@test -n "$(WHEELS)" || { echo "say where the wheels are: make test-wheels WHEELS=DIR"; exit 2; }
	LAYOUT_ORACLE_WHEELS="$(abspath $(WHEELS))" $(RUN) -m pytest -m wheels -rs

conformance: $(VENV)/test.stamp
	$(RUN) -m pytest cases/ --subject "$(SUBJECT)"

# Without a GPU pytest says why it skips, and the two measurements exit with 5.
test-gpu: $(VENV)/test.stamp
	$(RUN) -m pytest -m gpu -rs
	$(RUN) benchmarks/bandwidth.py --output $(OUT)/bandwidth || test $$? -eq 5
	$(RUN) benchmarks/rcp_dump/dump.py $(OUT)/measured.rcp || test $$? -eq 5

published: $(VENV)/runtime.stamp
	@test -n "$(WHEELS)" || { echo "say where the wheels are: make published WHEELS=DIR"; exit 2; }
	for version in 0.25.1 0.33.0; do \
	  $(RUN) harness.py verdict vllm==$$version --offline --wheel-dir "$(WHEELS)" \
	    --dtype bf16,fp16 --block-size 16 --output reports/published/vllm-$$version || exit 1; \
	done
	$(RUN) harness.py timeline vllm 0.19.0..0.33.0 --offline --wheel-dir "$(WHEELS)" \
	  --markdown reports/published/timeline-vllm.md
	$(RUN) harness.py timeline flashinfer-cubin 0.4.0.. --offline --wheel-dir "$(WHEELS)" \
	  --output reports/published
	# Exit code 1 says that some kernels do not read as declared, which is what is published.
	$(RUN) harness.py sweep flashinfer-cubin==0.6.13 --offline --wheel-dir "$(WHEELS)" \
	  --output reports/published --docs docs/k-scale-layout.md \
	  --timeline reports/published/timeline-flashinfer-cubin.json || test $$? -eq 1

lint: $(VENV)/test.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

numerics: $(VENV)/runtime.stamp
	$(RUN) harness.py numerics --groups 10000000

docs: $(VENV)/runtime.stamp
	$(RUN) harness.py numerics --docs docs/numerics.md $(WRITERS)

# Without llvmlite the compiled tier's rows are empty.
bench: $(VENV)/test.stamp
	$(RUN) -m pip install --quiet --editable '.[fast]'
	$(RUN) benchmarks/run.py $(if $(DOCS),--docs $(DOCS))

clean:
	rm -rf $(VENV) $(OUT) build dist
	rm -rf .benchmarks cases/.pytest_cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# A stamp is younger than everything that its installation depends on. What runs the verdict is a
# part of what tests it, so the second installation also counts as the first.
$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "Python 3.11 or later is needed, not " + sys.version.split()[0] + ": make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime.stamp: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --editable .
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/runtime.stamp
