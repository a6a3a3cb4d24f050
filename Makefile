# make: what a developer types. Python is the one of the environment that is active, or PYTHON=.
PYTHON ?= python
RUNS ?= 50

.PHONY: help setup check test slow docs bench chaos results results-check
help:  ## this page
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*##/\1 /' | awk '{n = $$1; $$1 = ""; printf "make %-14s%s\n", n, $$0}'
setup:  ## everything for development, into the environment that is active
	$(PYTHON) -m pip install --editable '.[dev]'
check:  ## lint, format and types: seconds to a minute
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
test:  ## the tests of everyday: minutes
	$(PYTHON) -m pytest
slow:  ## the long ones, and those that start Flower's own processes
	$(PYTHON) -m pytest -m 'slow or deployment'
docs:  ## the generated pages, then the site, into site/
	$(PYTHON) -m fedrage_flwr.methods > docs/methods.md
	$(PYTHON) -m fedrage_flwr.configuration > docs/configuration.md
	$(PYTHON) -m mkdocs build --strict
bench:  ## speed against references
	$(PYTHON) -m benchmarks
chaos:  ## runs killed at random moments and resumed must equal runs left alone
	$(PYTHON) tests/chaos.py --runs $(RUNS) --write benchmarks/chaos.json $(MORE)  # MORE=--continue after a stop
results:  ## the tables of recorded runs, and the verdict on the papers' claims: results/README.md
	$(PYTHON) -m fedrage_flwr.report.verdict results
results-check:  ## the same made anew must equal what is in results/
	$(PYTHON) -m fedrage_flwr.report.verdict --check results
