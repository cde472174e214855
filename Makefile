# make plan   set up, plan the shipped example, say where the report is
# make test   set up, run the quick tests
# make test-all   those and the thorough ones, which share what they plan
# make site   build the documentation into build/site; a broken link fails

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

.PHONY: plan test test-all site clean

plan: .venv/run
	.venv/bin/capplan plan examples/plan_sharegpt.yaml --out out
	@echo "The report is out/report.html"

test: .venv/dev
	.venv/bin/python -m pytest -q -n auto --dist loadfile

test-all: .venv/dev
	.venv/bin/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder \
		-m '(thorough or not (sglang or bench)) and not (slow or vllm or gpu)'

site: .venv/docs/made
	$(PYTHON) docs/gather.py build/docs $(if $(REPOSITORY),--repository $(REPOSITORY))
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --strict
	@echo "The site is build/site/index.html"

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "capplan needs Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The simulator is compiled by the first plan: sooner than for a wheel, whose build
# installs numba once more.
export HATCH_BUILD_NO_HOOKS = true

.venv/run: .venv/bin/python pyproject.toml
	.venv/bin/python -m pip install -qq -e .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	.venv/bin/python -m pip install -qq -e '.[dev]'
	@touch $@ .venv/run

# Its own packages alone: the pages need nothing of capplan.
.venv/docs/made: pyproject.toml
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/python -m pip install -qq $$($(PYTHON) -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

clean:
	rm -rf .venv build out
