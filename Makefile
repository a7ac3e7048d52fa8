# `make demo` and `make test` each create or update .venv themselves. PYTHON picks the interpreter (3.11 or 3.12).
PYTHON ?= python3

.PHONY: demo test unit docs clean

demo: .venv/installed
	.venv/bin/raysweep run demo

test: .venv/installed
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m "unit or quality" --numprocesses auto
	.venv/bin/python -m pytest -m "not unit and not quality" --numprocesses 2 --dist loadfile --no-loadscope-reorder

unit: .venv/installed
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m unit --numprocesses auto

docs: .venv/installed
	.venv/bin/mkdocs build --strict

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
