#!/usr/bin/env python3
"""Prefill and decode speed of upstream llama.cpp on a GGUF, through its shared libraries; standard library only.

The libraries are those of the npm package @node-llama-cpp/linux-x64 3.22.1 (folder bins/linux-x64); the structures below are
those of the llama 0.5.0 inside it. Prints one JSON line with the runs and their medians.
"""
import argparse
import ctypes as C
import json
import os
import random
import statistics
import sys
import time

VERSION = "0.5.0"
i32, u32, f32, ptr, flag = C.c_int32, C.c_uint32, C.c_float, C.c_void_p, C.c_bool


def fields(**groups):
    """(name, type) for every name of each group, in order"""
    return [(name, kind) for names, kind in groups.values() for name in names.split()]


class ModelParams(C.Structure):
    _fields_ = fields(a=("devices tensor_buft_overrides", ptr), b=("n_gpu_layers split_mode main_gpu load_mode", i32),
                      c=("tensor_split progress_callback progress_user_data kv_overrides extra", ptr),
                      d=("vocab_only check_tensors use_extra_bufts no_host no_alloc", flag)) + [("pad", C.c_uint8 * 64)]


class ContextParams(C.Structure):
    _fields_ = fields(a=("n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_per_seq", u32),
                      b=("n_threads n_threads_batch ctx_type rope_scaling_type pooling_type attention_type flash_attn_type", i32),
                      c=("rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow", f32),
                      d=("yarn_orig_ctx", u32), e=("defrag_thold", f32), f=("cb_eval cb_eval_user_data", ptr), g=("type_k type_v", i32),
                      h=("abort_callback abort_data", ptr),
                      i=("embeddings offload_kqv no_perf op_offload swa_full kv_unified", flag),
                      j=("samplers", ptr), k=("n_samplers", C.c_size_t)) + [("pad", C.c_uint8 * 64)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", i32), ("token", C.POINTER(i32)), ("embd", ptr), ("pos", C.POINTER(i32)), ("n_seq_id", C.POINTER(i32)),
                ("seq_id", C.POINTER(C.POINTER(i32))), ("logits", C.POINTER(C.c_int8))]


@C.CFUNCTYPE(None, C.c_int, C.c_char_p, ptr)
def errors_only(level, text, _):
    if level >= 4:
        sys.stderr.write(text.decode(errors="replace"))


class Llama:
    def __init__(self, libs, cpu):
        for name in ("libggml-base.so", f"libggml.v{VERSION}.so"):
            C.CDLL(os.path.join(libs, name), mode=C.RTLD_GLOBAL)
        ggml = C.CDLL(os.path.join(libs, f"libggml.v{VERSION}.so"))
        self.lib = lib = C.CDLL(os.path.join(libs, f"libllama.v{VERSION}.so"))
        lib.llama_log_set(errors_only, None)
        ggml.ggml_backend_load.restype, ggml.ggml_backend_load.argtypes = ptr, [C.c_char_p]
        if not ggml.ggml_backend_load(os.path.join(libs, f"libggml-cpu-{cpu}.so").encode()):
            sys.exit(f"llama.cpp: no CPU library for {cpu}")
        lib.llama_backend_init()
        lib.llama_model_default_params.restype, lib.llama_context_default_params.restype = ModelParams, ContextParams
        lib.llama_model_load_from_file.restype, lib.llama_model_load_from_file.argtypes = ptr, [C.c_char_p, ModelParams]
        lib.llama_init_from_model.restype, lib.llama_init_from_model.argtypes = ptr, [ptr, ContextParams]
        lib.llama_decode.argtypes = [ptr, Batch]
        lib.llama_get_memory.restype, lib.llama_get_memory.argtypes = ptr, [ptr]
        lib.llama_memory_clear.argtypes = [ptr, flag]
        lib.llama_synchronize.argtypes = [ptr]

    def open(self, model, n_ctx, ubatch, n_prompt, threads):
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp: cannot load {model}")
        p = self.lib.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = (n_ctx + 255) // 256 * 256, max(ubatch, n_prompt), ubatch
        p.n_threads = p.n_threads_batch = threads
        p.n_seq_max, p.flash_attn_type = 1, 1
        self.ctx = self.lib.llama_init_from_model(self.model, p)
        if not self.ctx:
            sys.exit("llama.cpp: cannot make a context")

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), True)

    def decode(self, first, ids):
        n, seq = len(ids), (i32 * 1)(0)
        b = Batch(n_tokens=n, token=(i32 * n)(*ids), pos=(i32 * n)(*range(first, first + n)), n_seq_id=(i32 * n)(*[1] * n),
                  seq_id=(C.POINTER(i32) * n)(*[C.cast(seq, C.POINTER(i32))] * n), logits=(C.c_int8 * n)(*([0] * (n - 1) + [1])))
        r = self.lib.llama_decode(self.ctx, b)
        if r:
            sys.exit(f"llama.cpp: llama_decode returned {r}")
        self.lib.llama_synchronize(self.ctx)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("libs", help="bins/linux-x64 of the npm package")
    ap.add_argument("model")
    ap.add_argument("-p", type=int, default=512, help="prompt tokens")
    ap.add_argument("-n", type=int, default=32, help="decoded tokens")
    ap.add_argument("-t", type=int, default=2, help="threads")
    ap.add_argument("-r", type=int, default=3, help="measured rounds, after one that is not")
    ap.add_argument("--warm", type=int, default=1, help="rounds that are not measured")
    ap.add_argument("--ubatch", type=int, default=512)
    ap.add_argument("--cpu", default="zen4", help="which of the package's CPU libraries")
    a = ap.parse_args()
    llama = Llama(a.libs, a.cpu)
    begin = time.time()
    llama.open(a.model, a.p + a.n + 8, a.ubatch, a.p, a.t)
    load_s = time.time() - begin
    random.seed(1)
    ids = [random.randrange(100, 2000) for _ in range(a.p + a.n)]
    prefill, decode = [], []
    for r in range(a.warm + a.r):
        llama.clear()
        t0 = time.time()
        llama.decode(0, ids[:a.p])
        t1 = time.time()
        for i in range(a.n):
            llama.decode(a.p + i, [ids[a.p + i]])
        t2 = time.time()
        if r >= a.warm:
            prefill.append(a.p / (t1 - t0))
            decode.append(a.n / (t2 - t1))
    print(json.dumps({"engine": "llama.cpp", "model": os.path.basename(a.model), "threads": a.t,
                      "prefill_tok_s": {"median": statistics.median(prefill), "runs": prefill},
                      "decode_tok_s": {"median": statistics.median(decode), "runs": decode}, "load_s": load_s}))


if __name__ == "__main__":
    main()
