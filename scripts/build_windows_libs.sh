#!/bin/sh
# build_windows_libs.sh - the C libraries of the Windows build, from the distribution's own source packages.
#
# usage: scripts/build_windows_libs.sh [folder]        (default: build/windows-libs beside the sources)
#
# Debian and Ubuntu have no Windows builds of jansson and cmocka, so their sources are fetched with
# `apt-get source` and cross-built as static libraries into folder/include and folder/lib; xxhash.h is copied. apt works on
# a package list of its own inside a temporary folder: no root needed, nothing under /etc or /var is changed, and the
# signatures are checked with the keys the system trusts. Does nothing when everything is there already.
# Needs: gcc-mingw-w64-x86-64 cmake make dpkg-dev. Prints one line when done, or one line saying what is wrong.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/windows-libs}
target=x86_64-w64-mingw32
wanted="include/jansson.h include/cmocka.h include/xxhash.h lib/libjansson.a lib/libcmocka.a"

fail() {
    echo "build_windows_libs.sh: $*" >&2
    exit 1
}

all_there() {
    for f in $wanted; do [ -s "$out/$f" ] || return 1; done
}

if all_there; then
    echo "Windows libraries: $out is complete"
    exit 0
fi
while read -r tool package; do
    command -v "$tool" >/dev/null || fail "$tool is missing; install it with: apt-get install $package"
done <<END
$target-gcc gcc-mingw-w64-x86-64
cmake cmake
make make
apt-get apt
dpkg-source dpkg-dev
END

work=$(mktemp -d) || fail "cannot make a temporary folder; is the disk full?"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/src" "$out/include" "$out/lib" 2>/dev/null ||
    fail "cannot write to $out"

# The system's package sources, asked for their source packages; third parties (no "debian" or "ubuntu" in the address) out.
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    grep -E '^deb-src [^ ]*(debian|ubuntu)' | sort -u >"$work/sources.list" || true
if [ ! -s "$work/sources.list" ]; then
    . /etc/os-release
    case $ID in
    debian) echo "deb-src http://deb.debian.org/debian ${VERSION_CODENAME:-stable} main" ;;
    ubuntu) echo "deb-src http://archive.ubuntu.com/ubuntu $VERSION_CODENAME main universe" ;;
    *) fail "$ID is neither Debian nor Ubuntu: no source packages known for it" ;;
    esac >"$work/sources.list"
fi

apt() {
    apt-get -qq -o Dir::State="$work/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work/cache" \
        -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Retries=3 "$@" >>"$work/log" 2>&1
}

why() { # the first line of the log that complains
    grep -E -m 1 '^(E:|W:|CMake Error|make.*Error)|error:' "$work/log"
}

apt update || fail "cannot read the source package lists: $(why)" # an absent network is only a warning here
(cd "$work/src" && apt source jansson cmocka xxhash) ||
    fail "cannot fetch the source packages (is there a network?): $(why)"

# No toolchain file: ours names wine as emulator, and then every try_run of a configuration would start it.
build() { # name, cmake options...
    name=$1
    shift
    cmake -S "$work"/src/"$name"-*/ -B "$work/$name" -G "Unix Makefiles" -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64 \
        -DCMAKE_C_COMPILER=$target-gcc -DCMAKE_RC_COMPILER=$target-windres -DCMAKE_FIND_ROOT_PATH=/usr/$target \
        -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -Wno-dev \
        -DCMAKE_C_FLAGS=-Wa,-muse-unaligned-vector-move -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@" >>"$work/log" 2>&1 &&
        make -C "$work/$name" -j2 install >>"$work/log" 2>&1 || fail "$name does not build: $(why)"
}

build jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF
build cmocka -DWITH_STATIC_LIB=ON -DUNIT_TESTING=OFF -DWITH_EXAMPLES=OFF

cp "$work"/prefix/include/jansson.h "$work"/prefix/include/jansson_config.h \
    "$work"/prefix/include/cmocka*.h "$work"/src/xxhash-*/xxhash.h "$out/include/"
for lib in jansson cmocka; do
    # cmocka up to 1.1.5 calls its static library libcmocka-static.a and does not install it
    found=$(find "$work/prefix" "$work/$lib" -name "lib$lib.a" -o -name "lib$lib-static.a" | head -n 1)
    [ -n "$found" ] || fail "$lib was built, but left no static library"
    cp "$found" "$out/lib/lib$lib.a"
done
all_there || fail "$out is still incomplete"
echo "Windows libraries: built in $out"
