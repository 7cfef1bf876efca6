# Two commands for everyone, each doing all of its own set-up:
#   make demo    watch a slow training job, read the verdict, watch the fixed one
#   make test    checks of the source, all pure tests, and a job of each kind: 12 minutes on two cores
# And for daily work:
#   make test-all PART=2/6   every test, in parts that take equally long; all of them without PART
#   make checks  format, lint, types, import contracts, names and words, front end
#   make web     the front end: what the report's page is drawn by
#   make generate   write the parts of docs that follow from the code
#   make fix     let the formatter and linter repair what they can
#   make frameworks   environments of TensorFlow, JAX and others, for tests/frameworks (4 GB)
#   make faults PYTHONS="python3.12 python3.13"   the tests of faults, with jobs on these interpreters
#   make bench   cost and speed, measured against an earlier build and against peers (hours)
#   make bench-quick   the most important rows of it (10 minutes)
#   make bench-diagnosis   an hour of training jobs with planted causes: does the verdict find them?
#   make docs    the site, into build/docs: open index.html there
#   make audit   known vulnerabilities of the dependencies (needs the network)
#   make test-versions   jobs on the supported releases of each framework (hours, up to 3 GB each)
#   make soak    thousands of kills of every process: is a step lost or counted twice? (hours)
#   make soak-hours   a job of two hours: do memory, descriptors and the run grow as they should?
#   make write-faults   every write of every process of a job fails: is anything lost silently? (hours)
#   make slow-faults   processes suspended for over a minute, 10,000 short ones, ten million spans
#   make fuzz    an hour of hostile input for the decoders and the HTTP API
#   make scan-sanitize   the compiled scanner of traces under address and undefined-behavior sanitizers
#   make gpu-check   what needs a real GPU: tests, the overhead table, small recorded windows

SHELL := /bin/sh
VENV ?= .venv
PY := $(VENV)/bin/python
# Bytecode is made by the first import, of what is imported: that of all files would take two minutes.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
RUFF_PATHS := src tests examples benchmarks tools web/build.py web/api_types.py hatch_build.py
PURE_TESTS := tests/unit tests/properties tests/contract tests/fuzz
JOB_TESTS := tests/golden tests/gpu tests/faults tests/frameworks tests/e2e
AZURITE := tests/support/azurite
NATIVE := src/stepscope/native_library.py
# Tests start thousands of interpreters; without bytecode each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# An environment for each file: requirements/frameworks/NAME.txt. That of Keras is in `make test`.
FRAMEWORKS := $(patsubst requirements/frameworks/%.txt,.venv-frameworks/%.ready,$(wildcard requirements/frameworks/*.txt))
KERAS := .venv-frameworks/keras.ready
INDEX_ANSWERS = $(PY) -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
	--dest $(@D)/index pip

.PHONY: demo test test-all tier checks format-check lint types contracts source web web-check native generate \
	fix frameworks test-versions faults scan-sanitize bench bench-quick bench-diagnosis soak soak-hours write-faults \
	slow-faults fuzz gpu-check docs audit clean

demo: $(VENV)/demo.ready
	@$(VENV)/bin/python examples/recommender/demo.py

test: $(VENV)/test.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target checks $(KERAS)
	@$(MAKE) --no-print-directory tier TIER=test

# Checks of the source go with the first part, environments of frameworks with the last one.
PART ?= 1/1
COUNT := $(notdir $(PART))
test-all: $(VENV)/test.ready
	@$(if $(filter 1/%,$(PART)),$(MAKE) --no-print-directory --jobs=2 --output-sync=target checks)
	@$(if $(filter $(COUNT)/%,$(PART)),$(MAKE) --no-print-directory frameworks)
	@$(MAKE) --no-print-directory tier TIER=test-all

checks: format-check lint types contracts source web-check

format-check:
	$(VENV)/bin/ruff format --check $(RUFF_PATHS)
lint:
	$(VENV)/bin/ruff check $(RUFF_PATHS)
types:
	$(VENV)/bin/mypy
contracts:
	$(VENV)/bin/lint-imports
source:
	$(PY) tools/check_source.py
web:
	$(PY) web/build.py
# Libraries in C. Where there is no compiler, Python and PyTorch do what they would, slower.
native:
	@command -v cc >/dev/null 2>&1 && $(PY) $(NATIVE) || true
scan-sanitize: $(VENV)/test.ready
	$(PY) -m tests.fuzz.scanner --sanitize $(OPTIONS)
web-check:
	$(PY) web/build.py check
# The emulator of Azure Storage, which npm has and pip does not.
$(AZURITE)/node_modules/ready: $(AZURITE)/package-lock.json
	@PATH="$(abspath $(VENV))/bin:$$PATH" npm ci --prefix $(AZURITE) --no-fund --no-audit --loglevel=error
	@touch $@
# Tests of a tier (CONTRIBUTING.md). Some of them wait, and jobs mostly do, for timers and other processes,
# so that more than cores run side by side, the jobs of a module with one worker; where the result is what
# a job waits for (`quiet`), jobs run alone. OPTIONS=--record-costs writes tests/costs.json.
PYTEST = $(PY) -m pytest --tier $(TIER) $(if $(filter test-all,$(TIER)),--part $(PART)) $(OPTIONS)
MARKS = $(if $(filter test,$(TIER)),and not extended)
tier: web native $(AZURITE)/node_modules/ready
	$(PYTEST) -n 3 --dist worksteal -m "not quiet $(MARKS)" $(PURE_TESTS)
	$(PYTEST) -n 4 --dist loadscope -m "not quiet $(MARKS)" $(JOB_TESTS)
	$(PYTEST) -m "quiet $(MARKS)" $(JOB_TESTS)

# What cannot be installed is skipped, with a sentence. With FRAMEWORKS_REQUIRED=1 that is an error, unless
# the package index cannot be reached.
frameworks: $(VENV)/test.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(FRAMEWORKS)
.venv-frameworks/%.ready: requirements/frameworks/%.txt requirements/torch.txt
	@mkdir -p $(@D) && python3 -m venv $(basename $@)
	@if $(basename $@)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<; \
	  then touch $@; \
	  else rm -rf $(basename $@); \
	    if [ -n "$(FRAMEWORKS_REQUIRED)" ] && $(INDEX_ANSWERS); then echo "$* cannot be installed"; exit 1; fi; \
	    echo "$* cannot be installed: its tests are skipped"; fi

# With jobs on other interpreters; stepscope itself runs in $(VENV), which PY=… changes.
faults: $(VENV)/test.ready
	@for python in $(PYTHONS); do \
	  $$python --version && JOB_PYTHON=$$python $(PY) -m pytest -q tests/faults || exit 1; done

generate: $(VENV)/test.ready
	$(PY) -m tools.docs

fix: $(VENV)/test.ready
	$(VENV)/bin/ruff check --fix $(RUFF_PATHS)
	$(VENV)/bin/ruff format $(RUFF_PATHS)

# OPTIONS='--today DIR --peers PYTHON --only REGEX'; what needs an option that is not given is "not measured".
bench bench-quick: $(VENV)/test.ready
	@command -v cc >/dev/null 2>&1 && $(PY) $(NATIVE) || true
	$(PY) -m benchmarks.laboratory $(if $(filter bench-quick,$@),--quick) $(OPTIONS)
	$(PY) -m tools.docs

# Nothing else should run on the machine meanwhile. OPTIONS=--subset takes ten minutes.
bench-diagnosis: $(VENV)/test.ready
	$(PY) -m benchmarks.diagnosis $(OPTIONS)

# Makes an environment for each release that has no results yet, and removes it.
# OPTIONS='--framework JAX 0.4.20' names one.
test-versions: $(VENV)/test.ready
	@$(PIP) uv
	$(PY) -m benchmarks.versions $(OPTIONS)

# Continues where it was interrupted. OPTIONS='--minutes 30' limits its time.
soak: $(VENV)/test.ready
	$(PY) -m benchmarks.kills $(OPTIONS)

# OPTIONS='--minutes 10 --rate 1000' for less time and more steps.
soak-hours: $(VENV)/test.ready
	$(PY) -m benchmarks.long_run $(OPTIONS)
# Continues where it was interrupted. OPTIONS='--rounds 1' is a quarter of it.
write-faults: $(VENV)/test.ready
	$(PY) -m benchmarks.write_faults $(OPTIONS)

slow-faults: $(VENV)/test.ready
	FULL_SCALE=1 $(PY) -m pytest tests/faults/test_suspension.py tests/faults/test_many_processes.py

fuzz: $(VENV)/test.ready requirements/fuzz.txt
	@$(PIP) -r requirements/fuzz.txt
	$(PY) -m tests.fuzz
	$(PY) $(NATIVE)
	$(PY) -m tests.fuzz.scanner
	$(PY) -m tests.fuzz.scanner --sanitize
	$(PY) -m tests.fuzz.api
	$(PY) -m tools.docs

# PyTorch must be one that finds the GPU; name its interpreter with PY=… where it is not in $(VENV).
gpu-check:
	$(PY) -c 'import torch; assert torch.cuda.is_available(), "torch finds no GPU here"'
	$(PY) -m pytest tests/gpu
	$(PY) -m benchmarks.gpu_overhead --fixtures
	$(PY) -m pytest tests/golden

# MkDocs has an environment of its own: nothing else needs it.
DOCS := $(VENV)/docs
$(DOCS)/ready: $(VENV)/bin/python requirements/docs.txt
	@$(PY) -m venv $(CLEAR) $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements/docs.txt
	@touch $@
docs: $(DOCS)/ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "build/docs/index.html"

# Needs the network, and so is no part of `make test`.
audit: $(VENV)/test.ready
	@$(PY) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/audit.txt
	$(VENV)/audit/bin/pip-audit --path "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@PATH="$(abspath $(VENV))/bin:$$PATH" npm audit --prefix web
	@PATH="$(abspath $(VENV))/bin:$$PATH" npm audit --prefix $(AZURITE)

# --- set-up ----------------------------------------------------------------------------------
# A fresh Debian machine has python3 but often neither venv nor a C compiler (the tests compile
# a stand-in for NVIDIA's driver library).

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
APT := $(SUDO) apt-get -o Dpkg::Use-Pty=0 -qq
apt_install = { $(APT) update && $(APT) install -y $(1) >/dev/null; } \
	  || { echo "apt-get cannot install $(1): install it, then run make again"; exit 1; }

# Replaced where it has no pip (it was made without python3-venv), belongs to a Python that is gone or
# too old, or was moved from another directory. One that VENV names is the user's.
ifeq ($(VENV),.venv)
ifneq ($(shell { $(VENV)/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' \
	&& grep -qF '$(abspath $(VENV))/bin/python' $(VENV)/bin/pip; } 2>/dev/null || echo broken),)
.PHONY: $(VENV)/bin/python
CLEAR := --clear
endif
endif
$(VENV)/bin/python:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "stepscope needs Python 3.11 or later; python3 is $$(python3 -V)"; exit 2; }
	@python3 -c 'import ensurepip, venv' 2>/dev/null || $(call apt_install,python3-venv)
	@[ -z "$(CLEAR)" ] || [ ! -e $(VENV) ] || echo "$(VENV) does not work and is replaced"
	@python3 -m venv $(CLEAR) $(VENV)

$(VENV)/base.ready: $(VENV)/bin/python pyproject.toml requirements/torch.txt
	@echo "setting up $(VENV) (PyTorch included; a few minutes the first time)"
	@$(PIP) -r requirements/torch.txt
	@$(PIP) -e .
	@touch $@

$(VENV)/demo.ready: $(VENV)/base.ready requirements/demo.txt
	@$(PIP) -r requirements/demo.txt
	@touch $@

$(VENV)/test.ready: $(VENV)/base.ready requirements/test.txt requirements/demo.txt
	@command -v chromium >/dev/null 2>&1 || $(call apt_install,chromium)
	@command -v cc >/dev/null 2>&1 || $(call apt_install,gcc libc6-dev)
	@$(PIP) -r requirements/test.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-frameworks web/node_modules $(AZURITE)/node_modules src/stepscope/assets/web build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
