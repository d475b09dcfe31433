#!/bin/sh
# The launcher: builds modchip when that has not been done (installing what is missing), then runs it with the arguments given.
#   scripts/modchip.sh run -p "Hello!"        scripts/modchip.sh chat -m MODEL.gguf
# Without arguments: a chat with the bundled model on a terminal, a one-line demonstration elsewhere.
set -eu
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
build=$root/build/release
program=$build/modchip

# Sources newer than the program: somebody has pulled or edited.
stale() {
    [ -n "$(find "$root/CMakeLists.txt" "$root/runtime" "$root/kernels" "$root/topology" "$root/io" "$root/platform" -newer "$program" -type f 2>/dev/null | head -n 1)" ]
}

if [ ! -x "$program" ] || { [ -w "$program" ] && stale; }; then
    "$root/scripts/install_deps.sh" run
    echo "building modchip (some minutes the first time)" >&2
    log=$(mktemp)
    if ! { cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release && cmake --build "$build" --target modchip; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "modchip.sh: the build failed; full log: $log" >&2
        exit 1
    fi
    rm -f "$log"
    touch "$program" # a newer file need not have changed it
fi

if [ $# -eq 0 ]; then
    if [ -t 0 ] && [ -t 1 ]; then set -- chat; else set -- run -p "Hello!" --think off --temp 0; fi
fi
exec "$program" "$@"
