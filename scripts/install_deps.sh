#!/bin/sh
# Installs the Debian/Ubuntu packages that are missing: install_deps.sh run|test
#   run   what building and running the program needs
#   test  that, and what the test suite needs (clang, mingw-w64, wine, qemu-user, analysers)
# Does nothing, and needs no rights, when everything is there.
set -eu

run="gcc make cmake ninja-build pkg-config libhwloc-dev liburing-dev libnuma-dev libjansson-dev libxxhash-dev libedit-dev"
test="clang clang-format clang-tidy libclang-rt-dev libcmocka-dev cppcheck shellcheck gcc-mingw-w64-x86-64 wine wine64 qemu-user python3 git dpkg-dev patch"

case "${1:-}" in
run) want=$run ;;
test) want="$run $test" ;;
*) echo "usage: install_deps.sh run|test" >&2; exit 2 ;;
esac

missing=
for p in $want; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "install_deps.sh: needs root to install:$missing" >&2; exit 1; }
    as_root=sudo
fi
echo "installing:$missing" >&2
log=$(mktemp)
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@" >>"$log" 2>&1; }
# shellcheck disable=SC2086  # a list of names
if ! { apt update && apt install -y --no-install-recommends $missing; }; then
    tail -5 "$log" >&2
    echo "install_deps.sh: apt-get could not install$missing; the lines above say why (full log: $log)" >&2
    exit 1
fi
rm -f "$log"
