# What is too long for every test run.
PYTHON ?= python
RUNS ?= 50

.PHONY: chaos results results-check
chaos:  ## runs killed at random moments and resumed must equal runs left alone
	$(PYTHON) tests/chaos.py --runs $(RUNS) --write benchmarks/chaos.json $(MORE)  # MORE=--continue after a stop

results:  ## the tables of recorded runs, and the verdict on the papers' claims: results/README.md
	$(PYTHON) -m fedrage_flwr.report.verdict results

results-check:  ## the same made anew must equal what is in results/
	$(PYTHON) -m fedrage_flwr.report.verdict --check results
