#!/usr/bin/env bash
# Builds and passes the tests: scripts/test.sh [STEP...]. Installs what is missing first. Without arguments every step:
#   check     layout, headers that compile alone, format, shell scripts
#   release   gcc build without warnings, what the compiler put into the kernels, the whole suite
#   clang     clang build without warnings, checks of the kernels
#   asan      suite under AddressSanitizer and UBSan       tsan     threads and engine under ThreadSanitizer
#   emulated  AVX2 under an emulated Haswell, scalar under an emulated Nehalem
#   windows   cross-build with mingw-w64, suite under wine
#   analyse   cppcheck, gcc -fanalyzer, clang-tidy
#   fuzz      each libFuzzer target for MC_FUZZ_SECONDS (30)
# Each step prints what it ran; logs of failures are shown. The last line counts steps.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD
all="check release clang asan tsan emulated windows analyse fuzz"
steps=${*:-$all}
jobs=$(nproc)
passed=0 failed=0 failures=

build() { # build PRESET [cmake options...]
    local preset=$1; shift
    cmake --preset "$preset" "$@" >"build/$preset.log" 2>&1 && cmake --build --preset "$preset" -j "$jobs" >>"build/$preset.log" 2>&1 ||
        { grep -E "error|warning|FAILED|Error" "build/$preset.log" | head -20; tail -5 "build/$preset.log"; return 1; }
}

suite() { # suite PRESET [ctest options...]
    local preset=$1; shift
    timeout 1500 ctest --preset "$preset" -j "$jobs" "$@" >"build/$preset.tests.log" 2>&1
    local rc=$?
    grep -E "tests passed|Failed|Timeout|\*\*\*" "build/$preset.tests.log"
    [ $rc = 0 ] || tail -60 "build/$preset.tests.log"
    return $rc
}

step_check() {
    python3 scripts/check_layout.py || return 1
    shellcheck -S warning scripts/*.sh tests/*/*.sh .ci/run || return 1
    if clang-format --version | grep -q "version 14"; then
        git ls-files '*.c' '*.h' | grep -v -e kernels/quant/grids -e '^models/' | xargs clang-format --dry-run -Werror 2>&1 | head -20
        [ "${PIPESTATUS[2]}" = 0 ] || { echo "run: clang-format -i on these files"; return 1; }
    else
        echo "skipped: format (clang-format 14 decides, this is another version)"
    fi
}
step_release() { build release && tests/check_objects.sh build/release && suite release; }
step_clang() { build clang && suite clang -R 'kernels|golden'; }
step_asan() { build asan && suite asan; }
step_tsan() { build tsan && suite tsan -R 'workers|bit_equality|session|settings|control_file|control_socket|os_socket|expert_cache|streaming'; }
step_emulated() {
    local d=build/release
    [ -x $d/modchip ] || build release || return 1
    local cpu want
    for cpu in Haswell Nehalem; do
        want=avx2; [ $cpu = Nehalem ] && want=scalar
        qemu-x86_64 -cpu $cpu $d/modchip --version 2>/dev/null | tee /dev/stderr | grep -q "$want" || { echo "$cpu: does not choose $want"; return 1; }
        qemu-x86_64 -cpu $cpu $d/modchip run -p "Hello!" --think off --temp 0 --quiet 2>/dev/null | tee "build/$cpu.txt" | grep -q "Hello! How can I help you?" ||
            { echo "$cpu: the bundled model says something else:"; cat "build/$cpu.txt"; return 1; }
        # loose: this emulator reads whole vectors for masked loads, so inputs cannot end at a fence
        CHECKKERN_LOOSE=1 qemu-x86_64 -cpu $cpu $d/tests/test_checkkern >"build/$cpu.log" 2>/dev/null || { tail -20 "build/$cpu.log"; return 1; }
        echo "$cpu: kernels and the bundled model run on $want"
    done
}
step_windows() {
    scripts/build_windows_libs.sh || return 1
    build windows || return 1
    export WINEPREFIX=$root/build/wineprefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=;winedbg.exe=d"
    if [ ! -d "$WINEPREFIX" ]; then
        timeout 300 wineboot -i >/dev/null 2>&1
        timeout 120 wine winecfg -v win10 >/dev/null 2>&1
    fi
    # Its services start now, or the first test would wait for them with ctest's pipe in their hands.
    wineserver -p >/dev/null 2>&1
    timeout 120 wine wineboot >/dev/null 2>&1
    suite windows
    local rc=$?
    wineserver -k >/dev/null 2>&1
    return $rc
}
step_analyse() {
    [ -f build/release/compile_commands.json ] || build release || return 1
    cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --suppressions-list=scripts/cppcheck.txt --enable=warning,portability \
        -j "$jobs" -I . --library=posix platform/base platform/linux topology io runtime kernels/*.c kernels/quant/types.c || return 1
    git ls-files 'platform/base/*.c' 'platform/linux/*.c' 'topology/*.c' 'io/*.c' 'runtime/*.c' |
        xargs -P "$jobs" -n 1 gcc -std=c17 -D_GNU_SOURCE -DMC_VERSION='""' -DMC_BUILD='""' -I . -O1 -fanalyzer -Wno-analyzer-malloc-leak -Werror -c -o /dev/null || return 1
    git ls-files 'platform/base/*.c' 'io/*.c' 'runtime/*.c' | xargs -P "$jobs" -n 12 clang-tidy --quiet -p build/release --warnings-as-errors='*' \
        --checks='-*,clang-analyzer-*,bugprone-*,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,-bugprone-reserved-identifier,-bugprone-branch-clone,-bugprone-sizeof-expression,-bugprone-suspicious-string-compare,-bugprone-not-null-terminated-result,-clang-analyzer-security.insecureAPI.*,-clang-analyzer-valist.Uninitialized,-clang-analyzer-optin.portability.UnixAPI' 2>/dev/null | grep -E "warning|error" | head -20
    [ "${PIPESTATUS[1]}" = 0 ]
}
step_fuzz() {
    build fuzz || return 1
    local t name
    for t in build/fuzz/tests/fuzz_*; do
        [ -x "$t" ] || continue
        name=$(basename "$t")
        mkdir -p "build/corpus/$name"
        "$t" -max_total_time="${MC_FUZZ_SECONDS:-30}" -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/ "build/corpus/$name" \
            "tests/fuzz/corpus/${name#fuzz_}" >"build/$name.log" 2>&1 || { tail -30 "build/$name.log"; return 1; }
        echo "$name: $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "build/$name.log" | tail -1)(s), nothing found"
    done
}

scripts/install_deps.sh test || exit 1
mkdir -p build
for step in $steps; do
    declare -F "step_$step" >/dev/null || { echo "test.sh: unknown step '$step'; steps: $all" >&2; exit 2; }
    echo "== $step"
    begin=$SECONDS
    if "step_$step"; then passed=$((passed + 1)); echo "== $step passed ($((SECONDS - begin)) s)"
    else failed=$((failed + 1)); failures="$failures $step"; echo "== $step FAILED ($((SECONDS - begin)) s)"; fi
done
[ -n "$failures" ] && echo "failed:$failures"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
