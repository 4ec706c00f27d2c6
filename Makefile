PYTHON ?= python3
BIN := .venv/bin

# The commit of the last push; without one, what is not committed.
REV ?= $(shell git rev-parse --quiet --verify '@{push}' || git rev-parse --quiet --verify origin/HEAD || echo HEAD)

.PHONY: env lab topic check lint test bench nightly outputs site pictures colab lock clean

env:
	@$(PYTHON) bootstrap.py

lab:  ## open the workbook in JupyterLab
	@$(PYTHON) bootstrap.py lab $(ARGS)

topic:  ## one topic: make topic T=nets runs its notebook, tests and exercises, and the house test
	@test -n "$(T)" || { echo 'Which one? make topic T=nets, or T=nets,race'; exit 2; }
	@$(PYTHON) bootstrap.py
	@$(BIN)/python -m pytest -n auto --topics $(T) $(ARGS)

check: lint  ## what the changes since the last push can break: make check REV=HEAD~3 for another start
	@$(BIN)/python -m pytest -n auto --changed $(REV) $(ARGS)

lint: env  ## style and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

test:  ## everything but the nightly tests, every notebook at quick size too
	@$(PYTHON) bootstrap.py test $(ARGS)

bench: env  ## what the fast paths gain, as ratios taken in one run
	@for file in tests/bench_*.py; do $(BIN)/python $$file; done

nightly: env  ## everything
	@$(BIN)/python -m pytest -n auto -m "nightly or not nightly" $(ARGS)

outputs: env  ## run the notebooks and store their outputs, cleaned
	@$(BIN)/python tests/store_outputs.py $(ARGS)

site: env  ## the notebooks as web pages: site/html/index.html
	@$(BIN)/python docs/build.py $(ARGS)

pictures: env  ## the two moving pictures of README, filmed on the pages of `make site` and in JupyterLab; needs Chromium
	@$(BIN)/python docs/pictures.py

colab: env  ## copies of the notebooks for Colab and Kaggle, in build/colab
	@$(BIN)/python docs/colab.py build/colab

lock:  ## pin what pyproject.toml asks for; needs uv
	@uv pip compile --universal --generate-hashes --no-annotate --quiet --extra test --group setup pyproject.toml -o requirements.lock

clean:  ## remove the environment and what runs left behind
	@rm -rf .venv results site .hypothesis .pytest_cache build dist
