#!/bin/sh
# `make bench`: builds and runs the benchmarks that need no model. Arguments go to ops_bench (--help lists them).
set -eu
cd "$(dirname "$0")/.."
cmake --build build/cpu --target ops_bench >/dev/null
exec build/cpu/bench/ops_bench "$@"
