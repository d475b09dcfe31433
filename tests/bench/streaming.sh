#!/bin/sh
# A model larger than memory: speed, share of the disk, ceiling, beside upstream llama.cpp: streaming.sh [MODEL] [SIZE...]
#   MODEL  a GGUF; default: an 8-layer model of true V4-Flash dimensions, made once with `modchip synth` (12 GB in build/bench)
#   SIZE   values of --memory (default: 8G 4G)
# What it measures and prints is at the top of streaming.py. As root on cgroup v1 every run gets the size as its control group's
# limit too; llama.cpp runs only then.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
export MODCHIP_PROGRAM="${MODCHIP_PROGRAM:-$root/build/release/modchip}"
[ -x "$MODCHIP_PROGRAM" ] || { echo "streaming.sh: build first: scripts/modchip.sh --version" >&2; exit 1; }
model=${1:-$root/build/bench/S8.gguf}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 8G 4G
if [ ! -f "$model" ]; then
    mkdir -p "$(dirname "$model")"
    "$MODCHIP_PROGRAM" synth "$model" --preset truedims --layers 8 --type attn=q4_K --type shexp=q5_K --type output=q6_K --type embd=q4_K \
        --experts 0:iq2_xxs,1-6:iq1_s,7:iq1_m >&2
fi
exec python3 "$root/tests/bench/streaming.py" "$root" "$model" "$@"
