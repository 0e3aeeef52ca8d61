#!/bin/bash
# Makes nibble-VERSION-linux-x86_64.tar.gz from a build folder and checks it.
#
#   packaging/make-package.sh [BUILD-FOLDER=build/cpu] [OUTPUT-FOLDER=build]
#
# The tar holds bin/nibble, share/nibble/models/tiny, LICENSE, README.md, in lib/ every library that is not on
# packaging/system-libraries.txt, and in licences/ the terms of what travels or was compiled in. It runs on the
# distribution it was made on and on later ones: release tars are made on Debian 12.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath "${1:-$root/build/cpu}")
mkdir -p "${2:-$root/build}"
output=$(realpath "${2:-$root/build}")
name=nibble-$(cat "$root/VERSION")-linux-$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/$name

cmake --install "$build" --prefix "$stage" --strip >/dev/null
mkdir -p "$stage/lib" "$stage/licences"

is_system() { sed 's/ *#.*//' "$root/packaging/system-libraries.txt" | grep -qxF "$1"; }

# licence_of FILE: copies the terms of the distribution package that owns it.
licence_of() {
  local package
  package=$(dpkg -S "$(realpath "$1")" | head -1 | cut -d: -f1)
  cp "/usr/share/doc/$package/copyright" "$stage/licences/$package"
}

# ldd has followed every chain, so libraries of libraries are in its list too.
while read -r soname _ path _; do
  is_system "$soname" && continue
  install -m 644 "$(realpath "$path")" "$stage/lib/$soname"
  licence_of "$path"
done < <(ldd "$build/nibble" | awk '$2 == "=>" { print }')
# Headers that became part of the executable. (Boost's licence asks for no notice in object code.)
licence_of /usr/include/CLI/CLI.hpp

# Same commit, same compiler: same bytes.
epoch=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$name" |
  gzip -9n >"$output/$name.tar.gz.part"
mv "$output/$name.tar.gz.part" "$output/$name.tar.gz"
"$root/packaging/check-package.sh" "$output/$name.tar.gz"
echo "$output/$name.tar.gz: $(stat -c %s "$output/$name.tar.gz") bytes"
