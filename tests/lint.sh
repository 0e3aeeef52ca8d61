#!/bin/bash
# Format and lint.
#
#   tests/lint.sh                 format check of every file, clang-tidy on changed ones, shellcheck (`make lint`)
#   tests/lint.sh --fix           formats in place (`make format`)
#   tests/lint.sh --format-only   the format check alone
#
# Changed means: against NIBBLE_LINT_BASE (default: where this branch left origin's, else the commit before). ALL=1 lints
# everything. clang-tidy reads build/cpu/compile_commands.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packaging/install-packages.sh lint
mapfile -t sources < <(git ls-files '*.cpp' '*.h')
if [[ ${1:-} == --fix ]]; then
  printf '%s\0' "${sources[@]}" | xargs -0 clang-format-14 -i
  exit 0
fi

failed=0
printf '%s\0' "${sources[@]}" | xargs -0 clang-format-14 --dry-run --Werror || {
  echo "lint: format differs; 'make format' fixes it" >&2
  failed=1
}
[[ ${1:-} == --format-only ]] && exit $failed

mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck "${scripts[@]}" || failed=1

base=${NIBBLE_LINT_BASE:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse HEAD~1)}
if [[ -n ${ALL:-} ]]; then
  changed=("${sources[@]}")
else
  mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
fi
mapfile -t units < <(printf '%s\n' "${changed[@]}" | grep '\.cpp$' | grep -v '_fuzz\.cpp$')
if [[ ${#units[@]} -gt 0 ]]; then
  cmake --preset cpu -DNIBBLE_TESTS=ON >/dev/null
  printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 -p build/cpu --quiet || failed=1
fi
exit $failed
