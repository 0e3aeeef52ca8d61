#!/bin/bash
# Checks a packaged tar: what it links to, how it finds it, and that it answers from another folder.
#
#   packaging/check-package.sh build/nibble-0.1.0-linux-x86_64.tar.gz
#
# Needs bash, tar and readelf. Says what is wrong and exits 1, or prints one line for each thing checked.
set -euo pipefail
export LC_ALL=C

tar=$(realpath "${1:?the tar.gz}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "check-package: $*" >&2
  exit 1
}

tar -C "$work" -xzf "$tar"
folders=("$work"/*)
[[ ${#folders[@]} -eq 1 ]] || fail "one folder expected in the tar, found ${#folders[@]}"
top=${folders[0]}
for file in bin/nibble LICENSE README.md; do
  [[ -s $top/$file ]] || fail "$file is missing"
done
allowed=$(sed 's/ *#.*//; /^$/d' "$here/system-libraries.txt")

# 1. Every library needed is in lib/ or on the list; nothing in lib/ is superfluous.
needed() { readelf -d "$1" | awk -F'[][]' '/\(NEEDED\)/ { print $2 }'; }
all_needed=$(for file in "$top/bin/nibble" "$top"/lib/*; do needed "$file"; done | sort -u)
for library in $all_needed; do
  case $library in
    libcurl* | libssl*) fail "$library must never be linked" ;;
  esac
  [[ -f $top/lib/$library ]] || grep -qxF "$library" <<<"$allowed" ||
    fail "$library is neither in lib/ nor in system-libraries.txt"
done
for file in "$top"/lib/*; do
  grep -qxF "${file##*/}" <<<"$all_needed" || fail "lib/${file##*/} is needed by nothing"
  ! grep -qxF "${file##*/}" <<<"$allowed" || fail "lib/${file##*/} belongs to the system"
done
echo "libraries: $(wc -w <<<"$all_needed") needed, $(find "$top/lib" -type f | wc -l) travel along"

# 2. They are found beside the executable, and so are their own dependencies (RPATH, not RUNPATH).
# shellcheck disable=SC2016  # $ORIGIN is meant as it stands
readelf -d "$top/bin/nibble" | grep -q '(RPATH).*\[\$ORIGIN/\.\./lib\]' ||
  fail "RPATH is not \$ORIGIN/../lib: $(readelf -d "$top/bin/nibble" | grep -E 'RPATH|RUNPATH')"
resolved=$(cd / && ldd "$top/bin/nibble")
grep 'not found' <<<"$resolved" && fail "a library is not found"
for file in "$top"/lib/*; do
  grep -qF "$(realpath "$top")/bin/../lib/${file##*/} " <<<"$resolved" || fail "${file##*/} is taken from elsewhere"
done
echo "search path: \$ORIGIN/../lib"

# 3. No newer C or C++ library than Debian 12's, when made there.
# shellcheck source=/dev/null
os=$(. /etc/os-release && echo "$ID-$VERSION_ID")
newest() { readelf -V "$top/bin/nibble" "$top"/lib/* | grep -oE "$1_[0-9.]+" | sort -uV | tail -1; }
glibc=$(newest GLIBC) glibcxx=$(newest GLIBCXX)
if [[ $os == debian-12 ]]; then
  [[ $(printf '%s\n' GLIBC_2.36 "$glibc" | sort -V | tail -1) == GLIBC_2.36 ]] || fail "needs $glibc"
  [[ $(printf '%s\n' GLIBCXX_3.4.30 "$glibcxx" | sort -V | tail -1) == GLIBCXX_3.4.30 ]] || fail "needs $glibcxx"
fi
echo "newest symbols: $glibc $glibcxx"

# 4. Terms of everything that travels.
travelling=$(find "$top/lib" -type f | wc -l) terms=$(find "$top/licences" -type f -size +0 | wc -l)
[[ $terms -gt $travelling ]] || fail "$travelling libraries in lib/, only $terms files in licences/"
echo "licences: $(find "$top/licences" -type f -printf '%f ')"

# 5. It starts from any folder and without our environment, and finds its model.
run() { (cd / && env -i HOME="$work" PATH=/usr/bin:/bin timeout 120 "$top/bin/nibble" "$@"); }
version=$(run --version) || fail "--version exits $?"
wanted=${top##*/nibble-}
[[ $version == *"${wanted%-linux-*}"* ]] || fail "--version prints '$version', expected ${wanted%-linux-*}"
echo "version: $version"
if compgen -G "$top/share/nibble/models/tiny/*.safetensors" >/dev/null; then
  answer=$(run run "What is 12 plus 7?") || fail "run exits $?"
  [[ $answer == *19* ]] || fail "What is 12 plus 7? is answered: $answer"
  echo "What is 12 plus 7? $answer"
else
  echo "no model in the package: the answer is not checked"
fi
