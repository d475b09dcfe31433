#!/bin/sh
# check_objects.sh - what the compiler really put into the kernel objects of a build.
#
#   tests/check_objects.sh BUILD_DIR        exit 0: clean, 1: findings, 2: cannot check
#
# 1. Only the folders avx2 and avx512 hold ymm, zmm or FMA instructions: elsewhere they would end the program on an older CPU.
# 2. avx2 holds no zmm and no mask registers, and VNNI only where it is compiled once more as avx2_vnni.
# 3. Symbols that leave those folders carry the folder's name: a second copy of a shared function, compiled for a newer CPU, could
#    be the one the linker keeps.
# 4. Windows objects hold no aligned vector moves to the stack: it is 16-byte aligned there and GCC cannot realign it.
build=${1:?usage: check_objects.sh BUILD_DIR}
objdump=${OBJDUMP:-objdump}
nm=${NM:-nm}
findings=0
checked=0

# complain OBJECT WHAT LINES
complain() {
    [ -z "$3" ] && return
    findings=$((findings + 1))
    echo "$1: $2"
    echo "$3" | head -n 3
}

objects=$(find "$build" -name '*.o' -o -name '*.obj' | grep -E '/mc_[a-z0-9_]+\.dir/' | sort)
[ -n "$objects" ] || { echo "no objects of this project below $build" >&2; exit 2; }

for o in $objects; do
    code=$($objdump -d --no-show-raw-insn "$o") || exit 2
    format=$(echo "$code" | sed -n 's/.*file format //p' | head -n 1)
    checked=$((checked + 1))
    case $o in
    */kernels/avx512/*) isa=avx512 ;;
    */mc_kernels_avx2_vnni.dir/*) isa=avx2_vnni ;;
    */kernels/avx2/*) isa=avx2 ;;
    *) isa=none ;;
    esac
    case $isa in
    none) complain "$o" "vector instructions outside avx2 and avx512" "$(echo "$code" | grep -E '%[yz]mm|%k[0-7]|vfn?m(add|sub)')" ;;
    avx2*) complain "$o" "AVX-512 instructions" "$(echo "$code" | grep -E '%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])')" ;;
    esac
    [ $isa = avx2 ] && complain "$o" "VNNI instructions" "$(echo "$code" | grep -E 'vpdp(bu|ws)sds? ')"
    if [ $isa != none ]; then
        complain "$o" "symbols that leave the folder without its name" \
            "$($nm --defined-only --extern-only "$o" | grep -Ev " _?(kern_init_)?${isa}_?")"
    fi
    case $format in
    pe*) complain "$o" "aligned vector moves to the stack" \
        "$(echo "$code" | grep -E 'vmov(aps|apd|dqa(32|64)?) .*\(%r[sb]p')" ;;
    esac
done
echo "$checked objects checked, $findings findings"
[ $findings -eq 0 ]
