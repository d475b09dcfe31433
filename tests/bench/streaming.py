"""Called by streaming.sh ROOT MODEL SIZE...; standard library only. For each SIZE of --memory:

  ceiling   a run sampled every 100 ms: resident pages, huge pages and what it put into the system's file cache, together below SIZE
  speed     prefill and decode of `bench`, hit rates, the disk while it was busy against what it gives raw in the same run
  after     decode right after a prompt of 512 tokens, against decode without one
  cold      decode with the smallest cache: disk share, and the time of a token against 1.15 x (missed bytes / raw disk + everything but
            the routed experts, from `profile`)
  peer      upstream llama.cpp with mmap under the same control group limit, decoding the same file
and once: decode while the cache doubles.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import time

ROOT, MODEL, SIZES = sys.argv[1], sys.argv[2], sys.argv[3:]
PROGRAM = os.environ["MODCHIP_PROGRAM"]
LIBS = os.path.join(ROOT, "build/peers/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
GROUPS = "/sys/fs/cgroup/memory"
LIBC = ctypes.CDLL(None, use_errno=True)
CTX = ["--ctx", "1024"]


def size_of(text):
    m = re.fullmatch(r"([0-9.]+)([KMGT]?)i?B?", text)
    return int(float(m[1]) * 1024 ** " KMGT".index(m[2] or " "))


def drop_cache():
    fd = os.open(MODEL, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cached_bytes():
    """of the model, in the system's file cache (mincore on a mapping that touches nothing)"""
    size = os.path.getsize(MODEL)
    fd = os.open(MODEL, os.O_RDONLY)
    LIBC.mmap.restype, LIBC.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    LIBC.munmap.argtypes, LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t], [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    at = LIBC.mmap(None, size, 1, 1, fd, 0)
    os.close(fd)
    pages = ctypes.create_string_buffer((size + 4095) // 4096)
    LIBC.mincore(at, size, pages)
    LIBC.munmap(at, size)
    return 4096 * sum(map(pages.raw.count, (b"\1", b"\3", b"\5", b"\7")))


class Group:
    """a control group of cgroup v1 with a memory limit, or nothing where that cannot be had"""

    def __init__(self, limit):
        self.path = os.path.join(GROUPS, f"modchip-{os.getpid()}")
        try:
            os.mkdir(self.path)
            with open(os.path.join(self.path, "memory.limit_in_bytes"), "w") as f:
                f.write(str(limit))
        except OSError:
            self.path = None

    def enter(self):
        if self.path:
            with open(os.path.join(self.path, "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))

    def peak(self):
        with open(os.path.join(self.path, "memory.max_usage_in_bytes")) as f:
            return int(f.read())

    def close(self):
        if self.path:
            os.rmdir(self.path)


def run(args, group, each=None):
    """stdout, or None with a line when the program failed"""
    p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=group.enter if group else None)
    if each:
        while p.poll() is None:
            each(p.pid)
            time.sleep(0.1)
    out, err = p.communicate()
    if p.returncode:
        print(f"    {os.path.basename(args[0])} {args[1]}: ended with {p.returncode}: {err.decode(errors='replace').strip().splitlines()[-1:]}")
        return None
    return out


def modchip(command, group, *options):
    out = run([PROGRAM, command, "-m", MODEL, "--json", "--quiet", *CTX, *options], group)
    return json.loads(out) if out else None


def held(pid):
    """bytes: resident, and huge pages of pools"""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            rows = dict(re.findall(r"^(\w+): +(\d+) kB", f.read(), re.M))
    except OSError:
        return 0
    return 1024 * sum(int(rows.get(k, 0)) for k in ("Rss", "Private_Hugetlb", "Shared_Hugetlb"))


def ceiling(size, limit, group):
    drop_cache()
    peak = [0, 0]

    def sample(pid):
        peak[0] = max(peak[0], held(pid) + cached_bytes())
        peak[1] += 1

    out = run([PROGRAM, "run", "-m", MODEL, "--raw", "-p", "one two three four five six seven", "-n", "64", "--ignore-eos", "--temp", "0", "--quiet",
               *CTX, "--memory", size], group, sample)
    if out is None:
        return
    text = f", control group {group.peak() / 1e9:.2f}" if group.path else ""
    print(f"  ceiling  peak {peak[0] / 1e9:.2f} GB of {limit / 1e9:.2f} in {peak[1]} samples{text}: {'kept' if peak[0] <= limit else 'BROKEN'}")


def show(name, r):
    s, d = r["streaming"], r["streaming"]["decode"]
    print(f"  {name:8s} decode {r['decode_tok_s']['median']:6.2f} tok/s, {100 * d['hit_rate']:.1f} % in memory, disk {d['disk_gb_s']:.2f} of {s['disk_gb_s']:.2f} GB/s "
          f"({100 * d['disk_share']:.0f} %), waited {100 * d['stall_s'] / d['seconds']:.0f} %, guesses used {d['guesses_used']} of {d['guesses']}")


def cold(size, group):
    plan = json.loads(run([PROGRAM, "plan", "-m", MODEL, "--json", "--quiet", *CTX, "--memory", size], None))
    least = f"{max(plan['expert_all_bytes'] // 50 // 1048576, 1)}M"
    r = modchip("bench", group, "--memory", size, "--expert-cache", least, "-p", "0", "-n", "32", "-r", "2")
    p = modchip("profile", group, "--memory", size, "--expert-cache", least, "-p", "0", "-n", "32")
    if not r or not p:
        return
    show("cold", r)
    rest = sum(o["ms"] for o in p["decode"]["operators"] if not o["op"].startswith("experts")) / 1e3 / p["decode"]["tokens"]
    d, s = r["streaming"]["decode"], r["streaming"]
    token = 1 / r["decode_tok_s"]["median"]
    n = d["seconds"] / token
    bound = d["bytes_read"] / n / (s["disk_gb_s"] * 1e9) + rest
    print(f"           a token {1e3 * token:.1f} ms; missed bytes at the raw disk and everything but the experts {1e3 * bound:.1f} ms: ratio {token / bound:.2f} (asked 1.15)")


def peer(group, ours):
    if not group.path or not os.path.isdir(LIBS):
        print("  peer     not run (needs root, cgroup v1, and build/peers of tests/peers/compare_llamacpp.sh)")
        return
    drop_cache()
    out = run([sys.executable, os.path.join(ROOT, "tests/peers/llamacpp_bench.py"), LIBS, MODEL, "-t", str(os.cpu_count()), "-p", "4", "-n", "8", "-r", "1", "--warm", "0"], group)
    if out:
        theirs = json.loads(out)["decode_tok_s"]["median"]
        print(f"  peer     llama.cpp decode {theirs:.2f} tok/s: ratio {ours / theirs:.1f}")


for size in SIZES:
    limit = size_of(size)
    print(f"== --memory {size}, {os.path.basename(MODEL)} {os.path.getsize(MODEL) / 1e9:.1f} GB", flush=True)
    group = Group(limit)
    try:
        ceiling(size, limit, group)
        alone = modchip("bench", group, "--memory", size, "-p", "0", "-n", "64", "-r", "2")
        after = modchip("bench", group, "--memory", size, "-p", "512", "-n", "64", "-r", "2")
        if alone and after:
            show("speed", alone)
            show("after", after)
            p = after["streaming"]["prefill"]
            print(f"           prefill {after['prefill_tok_s']['median']:.1f} tok/s, 512 tokens: read {p['bytes_read'] / 1e9:.2f} GB, waited {100 * p['stall_s'] / p['seconds']:.0f} %")
        sys.stdout.flush()
        cold(size, group)
        if alone:
            peer(group, alone["decode_tok_s"]["median"])
    finally:
        group.close()
    sys.stdout.flush()

print("== cache doubling, decode tok/s")
all_bytes = json.loads(run([PROGRAM, "plan", "-m", MODEL, "--json", "--quiet", *CTX, "--memory", SIZES[-1]], None))["expert_all_bytes"]
share = 1 / 32
while share <= 0.5:
    r = modchip("bench", None, "--expert-cache", f"{int(all_bytes * share) >> 20}M", "-p", "0", "-n", "64", "-r", "3")
    if r:
        print(f"  {100 * share:5.1f} % of the experts: {r['decode_tok_s']['median']:.2f} tok/s, {100 * r['streaming']['decode']['hit_rate']:.1f} % in memory", flush=True)
    share *= 2
