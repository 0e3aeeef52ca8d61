#!/bin/bash
# Proves the README's two commands on a fresh Debian 12: a debootstrap root with nothing but git and make, in which a clone
# of this repository (HEAD; what is not committed does not take part) runs `make serve` twice and then `make test`.
#
#   packaging/prove-debian.sh FOLDER [serve] [test]     default: both; FOLDER becomes the root (about 4 GB with test)
#
# As root, with debootstrap installed. FOLDER is made anew unless NIBBLE_KEEP_ROOT=1. The mirror is NIBBLE_MIRROR, else the
# one this system's apt uses if it runs bookworm too; this system's certificates and pip settings are taken along. A root of
# this kind shares the kernel, /proc and /dev with the system around it; it has no init, no users and no sudo.
set -euo pipefail
export LC_ALL=C.UTF-8

root=$(realpath -m "${1:?folder for the root}")
shift
steps=("$@")
[[ $# -gt 0 ]] || steps=(serve test)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ $root != / && $root != "$source"* ]] || { echo "prove-debian: not into $root" >&2; exit 2; }

carried=()
for name in PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy CI; do
  [[ -n ${!name:-} ]] && carried+=("$name=${!name}")
done
inside=(env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "${carried[@]}" chroot "$root")

leave() {
  for mount in dev/pts dev/shm dev proc sys; do
    mountpoint -q "$root/$mount" && umount "$root/$mount"
  done
  return 0
}
trap leave EXIT

if [[ -z ${NIBBLE_KEEP_ROOT:-} || ! -x $root/usr/bin/make ]]; then
  leave
  rm -rf --one-file-system "$root"
  # Every bookworm archive of this system (security updates too), as `URI SUITE`.
  # shellcheck disable=SC2016  # apt expands these
  archives=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Identifier: Packages' | grep -E ' bookworm(-|$)' | sort -u)
  mirror=${NIBBLE_MIRROR:-$(awk '$2 == "bookworm" { print $1; exit }' <<<"$archives")}
  [[ -n $mirror ]] || { echo "prove-debian: this system has no bookworm archive; set NIBBLE_MIRROR" >&2; exit 2; }
  echo "== debootstrap"
  debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -20 "$root.log"; exit 1; }
  if [[ -z ${NIBBLE_MIRROR:-} ]]; then
    awk '{ print "deb", $1, $2, "main" }' <<<"$archives" >"$root/etc/apt/sources.list"
  fi
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$root/etc/hosts"  # debootstrap leaves it to the installer
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
mkdir -p "$root/proc" "$root/sys" "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --bind /dev "$root/dev"
mkdir -p "$root/dev/shm" "$root/dev/pts"
mount --bind /dev/shm "$root/dev/shm"
mount --bind /dev/pts "$root/dev/pts"

echo "== packages before: $("${inside[@]}" dpkg-query -W | wc -l)"
rm -rf "$root/root/nibble" "$root/root/nibble.bundle"
git -C "$source" bundle create -q "$root/root/nibble.bundle" HEAD
"${inside[@]}" git clone -q /root/nibble.bundle /root/nibble
echo "== commit $("${inside[@]}" git -C /root/nibble log -1 --format='%h %s')"

# get PATH: the first line of the answer, by bash alone (a fresh root has no curl).
get() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&3
  head -1 <&3
  exec 3>&-
} 2>/dev/null

# serve LIMIT-SECONDS: make serve until /health says 200, within the limit; then SIGTERM, which must end it.
serve() {
  local limit=$1 start=$EPOCHREALTIME seconds maker
  "${inside[@]}" make -C /root/nibble --no-print-directory serve "PORT=$port" &
  maker=$!  # env and chroot become make
  while [[ $(get /health) != *" 200 "* ]]; do
    kill -0 $maker 2>/dev/null || { echo "prove-debian: make serve ended" >&2; return 1; }
    sleep 0.02
  done
  seconds=$(awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $start }")
  kill $maker
  wait $maker || true
  [[ -z $(get /health) ]] || { echo "prove-debian: the server outlived make" >&2; return 1; }
  echo "== ready after $seconds s (limit $limit s)"
  awk "BEGIN { exit !($seconds <= $limit) }"
}

for step in "${steps[@]}"; do
  case $step in
    serve)
      port=$((20000 + RANDOM % 20000))
      echo "== make serve"
      serve 3600
      echo "== make serve, again"
      serve 2
      ;;
    test)
      echo "== make test"
      "${inside[@]}" make -C /root/nibble --no-print-directory test </dev/null
      ;;
    *) echo "prove-debian: unknown step $step" >&2; exit 2 ;;
  esac
done
echo "== packages after: $("${inside[@]}" dpkg-query -W | wc -l)"
