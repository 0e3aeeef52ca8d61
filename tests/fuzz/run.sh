#!/bin/bash
# Runs each fuzz target of a folder for some seconds, two at a time.
#
#   tests/fuzz/run.sh build/fuzz/fuzz [SECONDS=20] [RESULTS-FILE]
#
# Seeds are tests/fuzz/corpus/TARGET (only read), the dictionary tests/fuzz/corpus/TARGET.dict where there is one. What a
# run finds stays under build/fuzz-scratch/TARGET; an input that crashes is named, and belongs into the corpus with its fix.
# One line a target, `ok NAME ...` or `FAILED NAME ...`; these lines are also the results file.
set -uo pipefail

binaries=${1:?folder with fuzz targets}
seconds=${2:-20}
results=${3:-/dev/null}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export root seconds
export UBSAN_OPTIONS=print_stacktrace=1

fuzz_one() {
  local target=$1 name scratch corpus status=0 options=()
  name=$(basename "$target")
  scratch=$root/build/fuzz-scratch/$name
  corpus=$root/tests/fuzz/corpus/$name
  rm -rf "$scratch"
  mkdir -p "$scratch/found" "$scratch/crashes"
  [[ -f $corpus.dict ]] && options+=("-dict=$corpus.dict")
  [[ -d $corpus ]] || corpus=
  # The largest seed bounds the length: longer inputs only slow the search down.
  local largest=4096 size
  if [[ -n $corpus ]]; then
    size=$(find "$corpus" -type f -printf '%s\n' | sort -n | tail -1)
    [[ ${size:-0} -gt $largest ]] && largest=$size
  fi
  "$target" "$scratch/found" ${corpus:+"$corpus"} "${options[@]}" -max_total_time="$seconds" -max_len="$largest" \
    -timeout=5 -rss_limit_mb=1024 -artifact_prefix="$scratch/crashes/" -print_final_stats=1 \
    >"$scratch/log" 2>&1 || status=$?
  local runs speed
  runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$scratch/log")
  speed=$(awk '/stat::average_exec_per_sec/ { print $2 }' "$scratch/log")
  local coverage
  coverage=$(grep -o 'cov: [0-9]*' "$scratch/log" | tail -1)
  if [[ $status -eq 0 && ${runs:-0} -gt 0 ]]; then
    echo "ok $name: $runs inputs, $speed/s, ${coverage:-cov: ?}"
  else
    echo "FAILED $name: exit $status, log build/fuzz-scratch/$name/log, input $(find "$scratch/crashes" -type f | head -1)"
    grep -E -m 12 'ERROR|SUMMARY|runtime error|^ +#[0-9] ' "$scratch/log" | sed 's/^/    /' >&2
  fi
}
export -f fuzz_one

shopt -s nullglob
targets=("$binaries"/*_fuzz)
if [[ ${#targets[@]} -eq 0 ]]; then
  echo "no fuzz target in $binaries"
  exit 0
fi
# shellcheck disable=SC2016  # the inner shell expands it
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P 2 bash -c 'fuzz_one "$1"' _ | tee "$results"
! grep -q '^FAILED' "$results"
