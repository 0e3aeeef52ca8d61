#!/bin/bash
# Installs the packages of the named sections of this distribution's table, after saying which are missing.
#
#   packaging/install-packages.sh build run          # what `make deps` does
#   packaging/install-packages.sh --list build       # prints the names only
#
# Nothing is removed, nothing recommended is added, no question is asked. With everything present it returns at once
# and needs no network. NIBBLE_SKIP_DEPS=1 leaves packages to you.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# packages TABLE SECTION...: the names in those sections, one a line.
packages() {
  local table=$1
  shift
  awk -v wanted=" $* " '
    { sub(/#.*/, ""); gsub(/^[ \t]+|[ \t]+$/, "") }
    /^\[.*\]$/ { use = index(wanted, " " substr($0, 2, length($0) - 2) " "); next }
    use && $0 != "" { print }' "$table"
}

list_only=false
if [[ ${1:-} == --list ]]; then
  list_only=true
  shift
fi
if [[ $# -eq 0 ]]; then
  echo "usage: $0 [--list] SECTION... (build run test package lint)" >&2
  exit 2
fi
if [[ -n ${NIBBLE_SKIP_DEPS:-} ]]; then
  exit 0
fi

# shellcheck source=/dev/null
os=$(. /etc/os-release && echo "${ID:-unknown}-${VERSION_ID:-unknown}")
table=$here/packages.$os.txt
if [[ ! -f $table ]]; then
  known=("$here"/packages.*.txt)
  {
    echo "nibble: no package table for this system ($os); there is one for:"
    for file in "${known[@]}"; do
      file=${file##*/packages.}
      echo "    ${file%.txt}"
    done
    echo "Install what corresponds to these packages of ${known[0]##*/}, then set NIBBLE_SKIP_DEPS=1:"
    packages "${known[0]}" "$@" | sed 's/^/    /'
  } >&2
  exit 1
fi

mapfile -t wanted < <(packages "$table" "$@")
if $list_only; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi
# One query for all; dpkg-query reports unknown names as an error, which simply leaves them missing.
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

echo "nibble: installing ${#missing[@]} packages for '$*' with apt-get (nothing will be removed):"
printf '%s\n' "${missing[@]}" | fmt -w 100 | sed 's/^/    /'

apt=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -o DPkg::Lock::Timeout=300)
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "nibble: that needs root. As root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  apt=(sudo "${apt[@]}")
fi
# A third-party source that does not answer must not stop the ones that do: installing decides.
"${apt[@]}" update </dev/null || echo "nibble: apt-get update had errors; going on with what is known" >&2
if ! "${apt[@]}" install -y --no-install-recommends --no-remove "${missing[@]}" </dev/null; then
  echo "nibble: apt-get could not install the packages above (table: ${table##*/})." >&2
  echo "nibble: if it wanted to remove something, resolve that by hand; nibble never removes a package." >&2
  exit 1
fi
