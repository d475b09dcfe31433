#!/usr/bin/env bash
# modchip beside upstream llama.cpp on one model, rounds interleaved: compare_llamacpp.sh [MODEL] [ROUNDS]
#   MODEL   a GGUF; default: a 4-layer model of true V4-Flash dimensions, made once with `modchip synth` (6.7 GB in build/)
# Fetches the npm package @node-llama-cpp/linux-x64 (version pinned) into build/peers. PROMPT (512), DECODE (32) and THREADS (all cores)
# from the environment (PEER_PROMPT, PEER_DECODE: fewer for a slow peer). Prints medians, ratios and our share of the memory bus.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${MODCHIP_PROGRAM:-$root/build/release/modchip}
model=${1:-$root/build/truedims4.gguf} rounds=${2:-3}
prompt=${PROMPT:-512} decode=${DECODE:-32} threads=${THREADS:-$(nproc)} warm=1
[ "${PEER_PROMPT:-$prompt}" = "$prompt" ] || warm=0 # a slow peer spends its time on arithmetic, not on first touch
peers=$root/build/peers
libs=$peers/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64

[ -x "$program" ] || { echo "compare_llamacpp.sh: build first: scripts/modchip.sh --version" >&2; exit 1; }
if [ ! -d "$libs" ]; then
    mkdir -p "$peers"
    npm install --no-save --silent --prefix "$peers" @node-llama-cpp/linux-x64@3.22.1 >&2
fi
if [ ! -f "$model" ]; then
    [ $# -eq 0 ] || { echo "compare_llamacpp.sh: $model: no such file" >&2; exit 1; }
    "$program" synth "$model" --preset truedims --layers 4 --type attn=q4_K --type shexp=q5_K --type output=q6_K --type embd=q4_K \
        --experts "0:iq2_xxs,1-2:iq1_s,3:iq1_m" >&2
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for r in $(seq "$rounds"); do
    echo "round $r of $rounds" >&2
    "$program" bench -m "$model" -t "$threads" -p "$prompt" -n "$decode" -r 1 --json --quiet >"$out/ours.$r"
    python3 "$root/tests/peers/llamacpp_bench.py" "$libs" "$model" -t "$threads" -p "${PEER_PROMPT:-$prompt}" -n "${PEER_DECODE:-$decode}" -r 1 --warm "$warm" >"$out/peer.$r"
done
python3 - "$out" "$model" <<'PY'
import glob, json, statistics as s, sys
ours = [json.load(open(f)) for f in sorted(glob.glob(sys.argv[1] + "/ours.*"))]
peer = [json.load(open(f)) for f in sorted(glob.glob(sys.argv[1] + "/peer.*"))]
med = lambda rows, key: s.median(r[key]["median"] for r in rows)
print(f"{sys.argv[2]}, {ours[0]['threads']} threads, {len(ours)} rounds, medians")
print(f"{'':10s} {'modchip':>10s} {'llama.cpp':>10s} {'ratio':>7s}")
for key, name in (("prefill_tok_s", "prefill"), ("decode_tok_s", "decode")):
    a, b = med(ours, key), med(peer, key)
    print(f"{name:10s} {a:10.2f} {b:10.2f} {a / b:7.2f}   tok/s")
gbs = lambda r: r["decode_tok_s"]["median"] * r["bytes_per_token"] / 1e9
print(f"decode reads {ours[0]['bytes_per_token'] / 1e9:.3f} GB a token: {s.median(gbs(r) for r in ours):.1f} GB/s of {s.median(r['mem_bw_gb_s'] for r in ours):.1f} "
      f"GB/s measured in the same runs, bus share {s.median(r['bus_share'] for r in ours):.2f} (llama.cpp {med(peer, 'decode_tok_s') * ours[0]['bytes_per_token'] / 1e9 / s.median(r['mem_bw_gb_s'] for r in ours):.2f})")
PY
