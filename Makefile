# `make demo`, `make test` and `make recovery` create or update .venv, and `make gpu` .venv-gpu. PYTHON selects the interpreter (3.11 to 3.13).
PYTHON ?= python3

.PHONY: demo test recovery unit gpu docs clean

demo: .venv/demo
	.venv/bin/raysweep run demo

test: .venv/installed
	.venv/bin/python -m pytest -m "unit or quality" --numprocesses auto
	.venv/bin/python -m pytest -m "ray or gpu or data" --numprocesses 2 --dist loadfile --no-loadscope-reorder

recovery: .venv/installed
	.venv/bin/python -m pytest -m recovery --numprocesses 2 --dist loadfile --no-loadscope-reorder

unit: .venv/installed
	.venv/bin/python -m pytest -m unit --numprocesses auto

gpu: .venv-gpu/installed
	.venv-gpu/bin/python -m benchmarks.gpu

docs: .venv/installed
	.venv/bin/mkdocs build --strict
	@echo "The site is in site/. Its search needs a server: python3 -m http.server --directory site"

# What the demo needs. `make test` adds the development packages.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[cpu,demo]'
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ .venv/demo

# A separate environment with faiss for GPUs. Without a GPU, nothing is installed.
.venv-gpu/installed: pyproject.toml constraints.txt
	@command -v nvidia-smi > /dev/null || { echo "make gpu: no GPU was found (no nvidia-smi); nothing was run" >&2; exit 2; }
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[gpu,demo,s3,test]'
	touch $@

clean:
	rm -rf .venv .venv-gpu
