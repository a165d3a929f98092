# Two commands do everything on a fresh machine: `make serve` and `make test`. Both set themselves up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := model training server client tests benchmarks monoscribe.py .ci/install.py

.PHONY: serve demo test check bench clean

serve: $(VENV)/serve.installed
	$(BIN)/monoscribe serve $(ARGS)

demo: $(VENV)/serve.installed  # streams a recording to a running server, as fast as it is spoken
	$(BIN)/monoscribe file --realtime tests/data/demo.flac $(ARGS)

test: $(VENV)/test.installed
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered $(ARGS)

check: $(VENV)/test.installed
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

bench: $(VENV)/bench.installed
	$(BIN)/monoscribe benchmark report $(ARGS)

$(VENV)/%.installed: pyproject.toml
	@$(PYTHON) .ci/install.py $(VENV) $*

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
