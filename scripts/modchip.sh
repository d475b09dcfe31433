#!/bin/sh
# The launcher: modchip.sh [--setup | --no-setup] [--dry-run] [COMMAND OPTIONS...]
#   modchip.sh run -p "Hello!"        modchip.sh chat -m MODEL.gguf --ctx 32768        modchip.sh --setup chat -m MODEL.gguf
# Builds modchip when that has not been done (installing what is missing), then runs it with the command and options given; without
# a command: a chat with the bundled model on a terminal, a one-line demonstration elsewhere.
#   --setup     for run, chat and bench: reserves the huge pages that the model needs and sets the CPU governor to
#               "performance", and puts both back when the program ends. Needs root or sudo
#   --no-setup  changes nothing and does not ask. Without either it asks on a terminal, where something would help
#   --dry-run   says what would be done, and does nothing but build
# From the environment: MODCHIP_PROGRAM (run this program, build nothing).
set -eu
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
build=$root/build/release
program=${MODCHIP_PROGRAM:-$build/modchip}
system=${MODCHIP_SYSROOT:-} # another tree of /sys: for tests

say() { echo "modchip.sh: $1" >&2; }
fail() { say "$1"; exit "${2:-1}"; }

# Sources newer than the program: somebody has pulled or edited.
stale() {
    [ -n "$(find "$root/CMakeLists.txt" "$root/runtime" "$root/kernels" "$root/topology" "$root/io" "$root/platform" -newer "$program" -type f 2>/dev/null | head -n 1)" ]
}

build() {
    "$root/scripts/install_deps.sh" run
    echo "building modchip (some minutes the first time)" >&2
    log=$(mktemp)
    if ! { cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release && cmake --build "$build" --target modchip; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        fail "the build failed; full log: $log"
    fi
    rm -f "$log"
    touch "$program" # a newer file need not have changed it
}

setup=ask dry=''
while [ $# -gt 0 ]; do
    case $1 in
    --setup) setup=yes ;;
    --no-setup) setup=no ;;
    --dry-run) dry=1 ;;
    *) break ;;
    esac
    shift
done

if [ -n "${MODCHIP_PROGRAM:-}" ]; then
    { [ -f "$program" ] && [ -x "$program" ]; } || fail "$program: no such program (MODCHIP_PROGRAM)"
elif [ ! -x "$program" ] || { [ -w "$program" ] && stale; }; then
    build
fi

if [ $# -eq 0 ]; then
    if [ -t 0 ] && [ -t 1 ]; then set -- chat; else set -- run -p "Hello!" --think off --temp 0; fi
fi
case $1 in
run | chat | bench) ;;
*)
    [ "$setup" != yes ] || fail "--setup prepares run, chat and bench; '$1' needs nothing" 2
    setup=no
    ;;
esac

# ---- what would help ----

governors() { # the CPUs' files whose governor is another one
    for g in "$system"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ -e "$g" ] || continue
        grep -qw performance "${g%governor}available_governors" 2>/dev/null && [ "$(cat "$g")" != performance ] && echo "$g"
    done
    return 0
}

# `modchip QUESTION` with those of the command's options that say how the model is loaded.
ask() {
    question=$1
    shift 2 # and the command
    set -- "$@" --
    while [ "$1" != -- ]; do
        known='' two=''
        case $1 in
        --*=*) name=${1%%=*} ;;
        -[mt]?*) name=-m ;;
        *) name=$1 two=1 ;;
        esac
        case $name in
        -m | --model | -t | --threads | --pin | --ctx | --batch | --kv | --arith | --layout | --isa | --config) known=1 ;;
        --io | --hugepages | --numa | --swiglu-*) known=1 ;;
        --moe-*) [ "$question" = plan ] || known=1 ;;
        --raw | --ignore-eos | --quiet | --json | --load | --no-* | [!-]*) two='' ;;
        --quick) known=1 two='' ;;
        --help | --version | -h) return ;;
        esac
        [ -z "$known" ] || set -- "$@" "$1"
        if [ -n "$two" ] && [ "$2" != -- ]; then # its value, which may look like an option
            [ -z "$known" ] || set -- "$@" "$2"
            shift
        fi
        shift
    done
    shift
    "$program" "$question" --json --quiet "$@" 2>/dev/null
}
plan_bytes() { ask plan "$@" | sed -n 's/.*"hugepage_bytes": *\([0-9]*\).*/\1/p'; }
# What `doctor` finds slower or worse: "CHECK: FOUND; REMEDY" a line. Fails when the model cannot run; of a wrong command line
# the command itself will speak.
findings() {
    blocked=0
    report=$(ask doctor "$@" --quick) || [ -z "$report" ] || blocked=1
    echo "$report" | sed 's/}, {/}\n{/g' | sed -n 's/.*"check": "\([^"]*\)", "state": "\(slower\|blocks\)", "found": "\(\([^"\\]\|\\.\)*\)", "remedy": "\(\([^"\\]\|\\.\)*\)".*/\1: \3; \5/p'
    return $blocked
}

free_pool() { # bytes
    total=0
    for f in "$system"/sys/kernel/mm/hugepages/hugepages-*kB/free_hugepages; do
        [ -e "$f" ] || continue
        kb=${f%kB/*}
        total=$((total + $(cat "$f") * ${kb##*-} * 1024))
    done
    echo $total
}

as_root() {
    if [ -n "$system" ] || [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
can_be_root() { [ -n "$system" ] || [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1; }

wants_pool() { # no, when these options leave the pool alone
    while [ $# -gt 0 ]; do
        case $1=${2:-} in --hugepages=off* | --hugepages=thp*) return 1 ;; esac
        shift
    done
}

pages='' slow='' found=''
if [ "$setup" = yes ] || [ -n "$dry" ] || { [ "$setup" = ask ] && [ -t 0 ] && [ -t 2 ] && can_be_root; }; then
    bytes=0
    [ "$setup" = no ] || ! wants_pool "$@" || bytes=$(plan_bytes "$@") || bytes=0
    # Below a gigabyte the pages are cleared before anybody waits for them.
    if [ "${bytes:-0}" -gt 1073741824 ] && [ "$(free_pool)" -lt "$bytes" ]; then pages=$((bytes / 1048576 + 2))M; fi
    [ "$setup" = no ] || slow=$(governors)
    if [ "$setup" != no ] && ! found=$(findings "$@"); then
        echo "$found" | sed 's/^/modchip.sh: /' >&2
        [ -n "$dry" ] || fail "this cannot run; 'modchip doctor' says more"
    fi
fi

if [ -n "$dry" ]; then
    echo "program: $program"
    echo "arguments:$(for a in "$@"; do printf " '%s'" "$a"; done)"
    [ -z "$pages" ] || echo "huge pages: reserve $pages, release them at the end$([ "$setup" = yes ] || echo ' (with --setup, or when asked)')"
    [ -z "$slow" ] || echo "governor: performance on $(echo "$slow" | wc -l) CPUs, put back at the end$([ "$setup" = yes ] || echo ' (with --setup, or when asked)')"
    [ -n "$pages$slow" ] || echo "system: nothing to change"
    [ -z "$found" ] || echo "$found" | sed 's/^/doctor: /'
    exit 0
fi
[ -z "$found" ] || echo "$found" | sed 's/^/modchip.sh: /' >&2
[ -n "$pages$slow" ] || exec "$program" "$@"

if [ "$setup" = ask ]; then
    say "would help while the program runs:${pages:+ $pages of reserved huge pages (loads faster);}${slow:+ CPU governor performance}"
    printf 'Do it now, and put it back at the end? [y/N] ' >&2
    read -r answer || answer=n
    case $answer in
    [yY]*) ;;
    *) exec "$program" "$@" ;;
    esac
fi
can_be_root || fail "--setup needs root or sudo"

# ---- prepare, run, put back ----

saved='' reserved=''
restore() {
    trap '' INT TERM HUP
    [ -z "$reserved" ] || as_root "$root/scripts/hugepages.sh" release >/dev/null || say "huge pages stay reserved: sudo $root/scripts/hugepages.sh release"
    echo "$saved" | while read -r file governor; do
        [ -z "$file" ] || as_root sh -c 'echo "$1" >"$2"' sh "$governor" "$file" || say "$file was $governor before"
    done
}
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ -n "$pages" ] && ls "$system"/run/modchip-hugepages-* >/dev/null 2>&1; then
    say "huge pages were reserved before, and too few; they are used as they are" # whoever did it will release them
elif [ -n "$pages" ]; then
    reserved=1 # before it is true: a signal in between must not leave them
    as_root "$root/scripts/hugepages.sh" reserve "$pages" >&2 || { reserved=''; say "goes on without reserved huge pages"; }
fi
for file in $slow; do
    governor=$(cat "$file")
    if as_root sh -c 'echo performance >"$1"' sh "$file"; then
        saved="$saved
$file $governor"
    else
        say "cannot set $file; goes on"
    fi
done

# In the background, so that a signal to the launcher reaches the program at once; its input is the launcher's.
exec 3<&0
"$program" "$@" <&3 3<&- &
child=$!
# A terminal sends it to the program too, and a second one would end the program at once; anybody else has sent it here only.
if [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; then trap : INT; else trap 'kill -INT $child 2>/dev/null || true' INT; fi
trap 'kill -TERM $child 2>/dev/null || true' TERM HUP
code=0
wait $child || code=$?
while kill -0 $child 2>/dev/null; do # the wait was cut short by a signal
    code=0
    wait $child || code=$?
done
exit $code
