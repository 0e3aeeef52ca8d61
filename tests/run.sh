#!/bin/bash
# Builds every preset and runs everything: ctest in cpu, asan and tsan, then each fuzz target. CUDA code is built where nvcc is.
#
#   tests/run.sh            short forms (`make test`, CI)
#   tests/run.sh --long     long forms too (`make test-long`)
#
#   NIBBLE_WERROR=ON        warnings are errors
#   FUZZ_SECONDS=20         time for each fuzz target (300 with --long)
#   CI=true                 a browser and the tokenizer oracle are required: skipping their tests is a failure
#
# A phase that fails is reported and the rest still runs. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
export LC_ALL=C.UTF-8

long=false
case ${1:-} in
  "") ;;
  --long) long=true ;;
  *) echo "usage: $0 [--long]" >&2; exit 2 ;;
esac
$long && export NIBBLE_TEST_LONG=1
fuzz_seconds=${FUZZ_SECONDS:-$($long && echo 300 || echo 20)}
werror=${NIBBLE_WERROR:-OFF}
results=$PWD/build/results
rm -rf "$results"
mkdir -p "$results"

broken=()  # phases that failed without a test to blame

# phase NAME COMMAND...: runs it, prints how long it took, remembers failure.
phase() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  echo "== $name: $((SECONDS - start)) s$([[ $status -eq 0 ]] || echo ", FAILED (exit $status)")"
  return $status
}

build() {
  local preset=$1 target=$2 tests=ON
  [[ $preset == fuzz ]] && tests=OFF
  cmake --preset "$preset" -DNIBBLE_WERROR="$werror" -DNIBBLE_TESTS=$tests >/dev/null &&
    cmake --build "build/$preset" --target "$target" -- -k 0
}

# run_tests PRESET ctest-arguments...: results for tests/summary.py go to build/results/PRESET.
run_tests() {
  local preset=$1
  shift
  mkdir -p "$results/$preset/cases"
  rm -rf "build/$preset/results"
  "${wrapper[@]}" ctest --test-dir "build/$preset" -j 2 --timeout 900 \
    --output-on-failure --no-tests=error --output-junit "$results/$preset/ctest.xml" "$@"
  local status=$?
  cp "build/$preset/results/"*.xml "$results/$preset/cases/" 2>/dev/null
  return $status
}
wrapper=()

phase "packages" packaging/install-packages.sh build run test package || exit 1
phase "python" tests/venv.sh || exit 1
phase "format" tests/lint.sh --format-only || broken+=("format")

if phase "build cpu" build cpu all; then
  ln -sfn cpu/nibble build/nibble
  $long && exclude=() || exclude=(-LE '^long$')
  phase "test cpu" run_tests cpu "${exclude[@]}" || [[ -f $results/cpu/ctest.xml ]] || broken+=("test cpu")
else
  broken+=("build cpu")
fi

# Where nvcc is: machine code for every architecture, and what of the GPU tests a machine without one can do (skip, by name).
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
  if phase "build cuda" build cuda ops_cuda_test && phase "cuda code" tests/cuda_code.sh build/cuda; then
    phase "test cuda" run_tests cuda -R '^ops_cuda_test$' || [[ -f $results/cuda/ctest.xml ]] || broken+=("test cuda")
  else
    broken+=("build cuda")
  fi
else
  echo "== build cuda: skipped, no nvcc on this machine"
fi

$long || export NIBBLE_TEST_SHORT=1

export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
if phase "build asan" build asan all; then
  phase "test asan" run_tests asan -LE '^(browser|long|package)$' || [[ -f $results/asan/ctest.xml ]] ||
    broken+=("test asan")
else
  broken+=("build asan")
fi

export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
if phase "build tsan" build tsan thread_tests; then
  # TSan of g++ 12 and clang 14 cannot map its shadow under the address randomisation of newer kernels.
  setarch "$(uname -m)" -R true 2>/dev/null && wrapper=(setarch "$(uname -m)" -R)
  phase "test tsan" run_tests tsan -L '^threads$' -LE '^(browser|long)$' || [[ -f $results/tsan/ctest.xml ]] ||
    broken+=("test tsan")
  wrapper=()
else
  broken+=("build tsan")
fi

if phase "build fuzz" build fuzz fuzz_targets; then
  phase "fuzz" tests/fuzz/run.sh build/fuzz/fuzz "$fuzz_seconds" "$results/fuzz.txt" ||
    [[ -f $results/fuzz.txt ]] || broken+=("fuzz")
else
  broken+=("build fuzz")
fi

echo "== all: $SECONDS s"
require=()
if [[ -n ${CI:-} ]]; then
  mapfile -t require < <(ctest --test-dir build/cpu -N -L '^browser$' | awk '/Test +#/ { print "--require=" $NF }')
  require+=(--require=oracle)
fi
exec python3 tests/summary.py "$results" "${require[@]}" "${broken[@]/#/--broken=}"
