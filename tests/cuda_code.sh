#!/bin/bash
# Does the CUDA library hold machine code for every architecture, and no PTX that a driver would compile at start?
#
#   tests/cuda_code.sh BUILD_FOLDER
set -euo pipefail
library=$1/src/ops/cuda/libnibble_ops_cuda.a
wanted=$(sed -n 's/^NIBBLE_CUDA_ARCHITECTURES:STRING=//p' "$1/CMakeCache.txt")
cuobjdump=$(command -v cuobjdump || echo /usr/local/cuda/bin/cuobjdump)
if [[ ! -x $cuobjdump ]]; then
  echo "cuda code: skipped, no cuobjdump on this machine"
  exit 0
fi
failed=0
for unit in $(ar t "$library" | grep '\.cu\.o$'); do
  object=$(find "$1/src/ops/cuda" -name "$unit" -print -quit)
  found=$("$cuobjdump" --list-elf "$object" | grep -o 'sm_[0-9a-z]*' | sort -u | tr '\n' ' ')
  for architecture in ${wanted//;/ }; do
    [[ " $found" == *" sm_$architecture "* ]] || { echo "cuda code: $unit holds no sm_$architecture (it holds $found)"; failed=1; }
  done
  if "$cuobjdump" --list-ptx "$object" 2>/dev/null | grep -qi 'ptx file'; then
    echo "cuda code: $unit holds PTX"
    failed=1
  fi
done
[[ $failed -eq 0 ]] && echo "cuda code: every unit holds $wanted, no PTX"
exit $failed
