#!/bin/sh
# The pool of huge pages that modchip loads weights into: hugepages.sh COMMAND [--1g]
#   show            pools, transparent huge pages, limits (the default; needs no rights)
#   reserve SIZE    makes at least SIZE of huge pages free, spread over the NUMA nodes, or changes nothing
#   release         gives back what `reserve` took; pages that a program still uses go when it ends
#   persist SIZE    also after a restart (a file in /etc/sysctl.d); `persist off` ends that
#   --1g            pages of 1 GiB in place of 2 MiB
# SIZE: 512M, 12G, 1.5GiB. Without a pool modchip asks for transparent huge pages by itself: as fast, but they must be cleared while a model loads.
# Changes need root. Exit: 0 done, 1 it could not be done (nothing has changed then), 2 wrong arguments.
set -eu

root=${MODCHIP_SYSROOT:-} # another tree of /sys, /proc, /run and /etc: for tests
state=$root/run/modchip-hugepages # and the size of the pages: the pools before the first `reserve`
config=$root/etc/sysctl.d/60-modchip-hugepages.conf
page_kb=2048

fail() { echo "hugepages.sh: $1" >&2; exit "${2:-1}"; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
number() { # number FILE: its content, 0 if it has none
    n=$(cat "$1" 2>/dev/null) || n=0
    case $n in '' | *[!0-9]*) n=0 ;; esac
    echo "$n"
}
gib() { awk -v kb="$1" 'BEGIN { printf "%.1f GiB", kb / 1048576 }'; }
pages_of() { # pages_of SIZE: how many pages hold it
    awk -v s="$1" -v kb=$page_kb 'BEGIN {
        if (!match(s, /^[0-9]+(\.[0-9]+)?/)) exit 1
        n = substr(s, 1, RLENGTH); u = toupper(substr(s, RLENGTH + 1)); sub(/I?B$/, "", u)
        f = u == "" ? 1 / 1024 : u == "K" ? 1 : u == "M" ? 1024 : u == "G" ? 1048576 : u == "T" ? 1073741824 : 0
        if (f == 0 || n <= 0) exit 1
        p = n * f / kb; printf "%.0f\n", p == int(p) ? p : int(p) + 1
    }' || fail "'$1' is no size; expected one like 512M or 12G" 2
}

# The pools of this page size: one a NUMA node; one for the whole machine where there are no nodes.
pools() {
    found=''
    for d in "$root"/sys/devices/system/node/node[0-9]*/hugepages/hugepages-"${page_kb}"kB; do
        # a node without CPUs (memory behind another bus) is nobody's home
        [ -d "$d" ] && { [ ! -e "$d/../../cpulist" ] || [ -n "$(cat "$d/../../cpulist")" ]; } && echo "$d" && found=1
    done
    [ -n "$found" ] || { d=$root/sys/kernel/mm/hugepages/hugepages-${page_kb}kB; [ ! -d "$d" ] || echo "$d"; }
}
need_pools() {
    [ -n "$(pools)" ] || fail "this kernel has no huge pages of $((page_kb / 1024)) MiB$([ $page_kb = 2048 ] || echo '; leave out --1g')"
}
need_root() {
    [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "needs root: sudo $0 $*"
}

show() {
    for kb in 2048 1048576; do
        page_kb=$kb
        for d in $(pools); do
            name=${d#"$root"/sys/devices/system/node/}
            case $name in node*) name=" on ${name%%/*}" ;; *) name= ;; esac
            total=$(number "$d/nr_hugepages") free=$(number "$d/free_hugepages")
            echo "pages of $((kb / 1024)) MiB$name: $total ($(gib $((total * kb)))), free $free ($(gib $((free * kb))))"
        done
    done
    thp=$(sed -n 's/.*\[\(.*\)\].*/\1/p' "$root/sys/kernel/mm/transparent_hugepage/enabled" 2>/dev/null || true)
    case $thp in
    never) echo "transparent huge pages: never; to allow them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" ;;
    '') echo "transparent huge pages: not in this kernel" ;;
    *) echo "transparent huge pages: $thp" ;;
    esac
    echo "memory available: $(gib "$(awk '/^MemAvailable:/ { print $2 }' "$root/proc/meminfo")")"
    echo "memory that a program of this user may lock: $(awk '/^Max locked memory/ { print $4 == "unlimited" ? $4 : $4 / 1024 " KiB" }' "$root/proc/self/limits" 2>/dev/null)"
    [ ! -e "$config" ] || echo "after a restart: $(sed -n 's/^vm.nr_hugepages *= *//p' "$config") pages of 2 MiB ($config)"
    for f in "$state"-*kB; do
        [ ! -s "$f" ] || echo "reserved by this script, pages of ${f#"$state"-}: 'release' gives them back"
    done
}

# Puts the pools back to the numbers in file $1 (lines "PAGES POOL"). Reports what is still in use.
put_back() {
    while read -r before pool; do
        echo "$before" >"$pool/nr_hugepages" || true
        after=$(number "$pool/nr_hugepages")
        [ "$after" -le "$before" ] || echo "hugepages.sh: $((after - before)) pages are still in use ($pool); they go when their program ends" >&2
    done <"$1"
    rm -f "$1"
}

reserve() {
    want=$(pages_of "$1") || exit 2
    need_pools
    need_root reserve "$1"
    list=$(pools) nodes=$(pools | wc -l)
    share=$(((want + nodes - 1) / nodes)) missing=0
    for d in $list; do [ "$(number "$d/free_hugepages")" -ge $share ] || missing=1; done
    [ $missing = 1 ] || { echo "already free: $want pages of $((page_kb / 1024)) MiB ($(gib $((want * page_kb))))"; return; }
    kept=$state-${page_kb}kB fresh=''
    [ -s "$kept" ] || fresh=1
    now=$(for d in $list; do echo "$(number "$d/nr_hugepages") $d"; done)
    trap 'undo; fail "stopped; nothing has changed" 130' INT TERM HUP
    [ -z "$fresh" ] || { echo "$now" >"$kept.new" && mv "$kept.new" "$kept"; } || fail "cannot write $kept; nothing has changed"
    got=0
    for d in $list; do
        free=$(number "$d/free_hugepages") total=$(number "$d/nr_hugepages")
        if [ "$free" -lt $share ]; then
            goal=$((total + share - free))
            # Twice: between the two the kernel moves pages together, which makes more whole ones.
            for again in 1 2; do
                echo $goal >"$d/nr_hugepages" 2>/dev/null || true
                [ "$(number "$d/nr_hugepages")" -lt $goal ] || break
                [ $again = 2 ] || echo 1 >"$root/proc/sys/vm/compact_memory" 2>/dev/null || true
            done
            [ "$(number "$d/nr_hugepages")" -ge $goal ] || { short $((got + $(number "$d/nr_hugepages") - total + free)); }
        fi
        got=$((got + share))
    done
    trap - INT TERM HUP
    echo "free for modchip: $got pages of $((page_kb / 1024)) MiB ($(gib $((got * page_kb)))); 'hugepages.sh release' gives them back"
}
# The pools as they were before this command.
undo() {
    echo "$now" | while read -r before pool; do echo "$before" >"$pool/nr_hugepages" 2>/dev/null || true; done
    [ -z "$fresh" ] || rm -f "$kept" "$kept.new"
}
short() {
    undo
    fail "only $1 of $want pages could be had: memory is in use or in pieces; ask for less, stop other programs, or reserve right after a restart. Nothing has changed"
}

release() {
    need_root release
    any=''
    for f in "$state"-*kB; do
        [ ! -s "$f" ] || { put_back "$f"; any=1; }
    done
    if [ -n "$any" ]; then echo "given back"; else echo "nothing was reserved by this script"; fi
}

persist() {
    need_root persist "$1"
    if [ "$1" = off ]; then
        rm -f "$config"
        echo "after a restart: no pool of modchip's"
        return
    fi
    want=$(pages_of "$1") || exit 2
    [ $page_kb = 2048 ] || fail "pages of 1 GiB are reserved by the kernel's command line: add hugepagesz=1G hugepages=$want"
    mkdir -p "${config%/*}"
    if ! { printf '%s\n' "# Written by modchip's scripts/hugepages.sh; 'hugepages.sh persist off' removes it." "vm.nr_hugepages = $want" >"$config.new" &&
        mv "$config.new" "$config"; }; then
        rm -f "$config.new"
        fail "cannot write $config"
    fi
    echo "after a restart: $want pages of 2 MiB ($config); for now: hugepages.sh reserve $1"
}

command='' size=''
for a in "$@"; do
    case $a in
    --1g) page_kb=1048576 ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option '$a'; see --help" 2 ;;
    *) if [ -z "$command" ]; then command=$a; elif [ -z "$size" ]; then size=$a; else fail "too many arguments: '$a'" 2; fi ;;
    esac
done
case ${command:-show} in
show) [ -z "$size" ] || fail "show takes no argument" 2; show ;;
release) [ -z "$size" ] || fail "release takes no argument" 2; release ;;
reserve | persist) [ -n "$size" ] || fail "$command needs a SIZE such as 12G" 2; "$command" "$size" ;;
*) fail "unknown command '$command'; there are show, reserve, release, persist" 2 ;;
esac
