# What is too long for every test run.
PYTHON ?= python
RUNS ?= 50

.PHONY: chaos
chaos:  ## runs killed at random moments and resumed must equal runs left alone
	$(PYTHON) tests/chaos.py --runs $(RUNS) --write benchmarks/chaos.json $(MORE)  # MORE=--continue after a stop
