# The short ways in. CMake does the building (CMakePresets.json), scripts do the rest; docs/development.md explains.
MODEL ?= tiny
HOST ?= 127.0.0.1
PORT ?= 8000
SHELL := /bin/bash
# With an NVIDIA GPU and nvcc: the CUDA backend too.
PRESET ?= $(shell { [ -e /dev/nvidia0 ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null && echo cuda; } || echo cpu)
MAKEFLAGS += --no-builtin-rules

.PHONY: build deps serve test test-long bench package format lint score clean help

build: build/$(PRESET)/build.ninja
	@cmake --build build/$(PRESET) --target nibble
	@ln -sfn $(PRESET)/nibble build/nibble

build/$(PRESET)/build.ninja: CMakePresets.json
	@command -v cmake ninja c++ >/dev/null || { echo "nibble: no compiler, cmake or ninja here: run 'make deps' first" >&2; exit 1; }
	@cmake --preset $(PRESET) >/dev/null && touch $@

deps:
	@packaging/install-packages.sh build run

serve: deps
	@$(MAKE) --no-print-directory build
	@exec build/nibble serve $(MODEL) --host $(HOST) --port $(PORT)

test:
	@tests/run.sh

test-long:
	@tests/run.sh --long

bench: build
	@cmake --build build/$(PRESET) --target ops_bench sample_bench fixed_cost_server api_latency
	@build/$(PRESET)/bench/ops_bench
	@build/$(PRESET)/bench/sample_bench
	@python3 bench/serve_speed.py --binary build/nibble --model $(MODEL)
	@python3 bench/engine_speed.py --build build/$(PRESET)

package: build
	@packaging/install-packages.sh package
	@packaging/make-package.sh build/$(PRESET)

format:
	@tests/lint.sh --fix

lint:
	@tests/lint.sh

score: build
	@python3 tools/tiny/score.py --binary build/nibble --model models/tiny

clean:
	rm -rf build

help:
	@echo 'make            build ./build/nibble'
	@echo 'make deps       install what building and running need (says what first)'
	@echo 'make serve      deps, build, then serve MODEL=$(MODEL) on HOST=$(HOST) PORT=$(PORT)'
	@echo 'make test       install what the tests need, build every preset, run every test and the fuzz targets'
	@echo 'make test-long  the same with the long forms'
	@echo 'make bench      measure speed'
	@echo 'make package    build/nibble-VERSION-linux-x86_64.tar.gz, checked'
	@echo 'make format     clang-format everything;  make lint  check format, clang-tidy, shellcheck'
	@echo 'make score      held-out scores of the bundled model'
	@echo 'make clean      remove build/'
