PYTHON ?= python3
BIN := .venv/bin

.PHONY: env lab test bench nightly outputs site colab lock clean

env:
	@$(PYTHON) bootstrap.py

lab:  ## open the workbook in JupyterLab
	@$(PYTHON) bootstrap.py lab $(ARGS)

test:  ## every test, and every notebook by nbval at quick size
	@$(PYTHON) bootstrap.py test $(ARGS)

bench: env  ## what the fast paths gain, as ratios taken in one run
	@for file in tests/bench_*.py; do $(BIN)/python $$file; done

nightly: env  ## the long tests
	@$(BIN)/python -m pytest -n auto tests -m nightly $(ARGS)

outputs: env  ## run the notebooks and store their outputs, cleaned
	@$(BIN)/python tests/store_outputs.py $(ARGS)

site: env  ## the notebooks as web pages: site/html/index.html
	@$(BIN)/python docs/build.py $(ARGS)

colab: env  ## copies of the notebooks for Colab and Kaggle, in build/colab
	@$(BIN)/python docs/colab.py build/colab

lock:  ## pin what pyproject.toml asks for; needs uv
	@uv pip compile --universal --generate-hashes --no-annotate --quiet --extra test --group setup pyproject.toml -o requirements.lock

clean:  ## remove the environment and what runs left behind
	@rm -rf .venv results site .hypothesis .pytest_cache build dist
