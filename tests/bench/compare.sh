#!/usr/bin/env bash
# modchip beside upstream llama.cpp on 4-layer models of true V4-Flash dimensions: compare.sh [ROUNDS] [R1 R2 R3 R4 ...]
#   R1  q2_0 attention, iq2_xxs and iq1 experts, q6_K head (6.6 GB)   R2  q8_0 dense, iq2_xxs / q2_K experts (9.0 GB)
#   R3  q8_0 dense, mxfp4 experts (15 GB)                             R4  q4_K attention, iq1 experts, q6_K head (6.7 GB)
# Makes each model with `modchip synth` in build/bench when it is not there (BENCH_DIR: another folder). Rounds are interleaved, medians are
# printed (tests/peers/compare_llamacpp.sh); then modchip alone: 512 and 2048 prompt tokens, AVX2, one worker, one after the other. llama.cpp has no vector code for q2_0: R1 gives it 256 prompt tokens and 8 decoded ones.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${MODCHIP_PROGRAM:-$root/build/release/modchip}
dir=${BENCH_DIR:-$root/build/bench}
rounds=${1:-3}
[ $# -gt 0 ] && shift
[ -x "$program" ] || { echo "compare.sh: build first: scripts/modchip.sh --version" >&2; exit 1; }
mkdir -p "$dir"

recipe() { # recipe NAME: the options of synth
    local dense="--type attn=q8_0 --type shexp=q8_0 --type output=q8_0 --type embd=q8_0"
    case $1 in
    R1) ;;
    R2) echo "$dense --experts 0-3:iq2_xxs/q2_K" ;;
    R3) echo "$dense --experts 0-3:mxfp4" ;;
    R4) echo "--type attn=q4_K --type shexp=q5_K --type output=q6_K --type embd=q4_K --experts 0:iq2_xxs,1-2:iq1_s,3:iq1_m" ;;
    *) echo "compare.sh: unknown recipe $1; there are R1 R2 R3 R4" >&2; exit 2 ;;
    esac
}

figure() { # figure NAME OPTIONS...: medians of modchip bench
    local name=$1
    shift
    "$program" bench --json --quiet -r 3 "$@" | python3 -c "
import json, sys
r = json.load(sys.stdin)
print('  %-22s' % '$name' + '   '.join(f'{k} {r[k + \"_tok_s\"][\"median\"]:.2f} tok/s' for k in ('prefill', 'decode') if r[k + '_tokens']))"
}

[ $# -gt 0 ] || set -- R1 R2 R4
for name in "$@"; do
    model=$dir/$name.gguf options=$(recipe "$name")
    # shellcheck disable=SC2086  # a list of options
    [ -f "$model" ] || "$program" synth "$model" --preset truedims --layers 4 $options >&2
    echo "== $name"
    peer_prompt=512 peer_decode=32
    [ "$name" = R1 ] && peer_prompt=256 peer_decode=8
    PEER_PROMPT=$peer_prompt PEER_DECODE=$peer_decode "$root/tests/peers/compare_llamacpp.sh" "$model" "$rounds"
    figure "512 tokens" -m "$model" -p 512 -n 32
    figure "2048 tokens" -m "$model" -p 2048 -n 0
    figure "avx2" -m "$model" --isa avx2 -p 512 -n 32
    figure "1 worker" -m "$model" -t 1 -p 512 -n 32
done
