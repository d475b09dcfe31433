#!/usr/bin/env bash
# Machines with several NUMA nodes and L3 groups, emulated, by hand: tests/emulated/run.sh [BUILD_FOLDER]   (build/release)
# Boots each machine with the built program and looks at four things: `topo` plans what its shape asks for; the workers and the
# pages that they touch first are where the plan says (test_workers); the packed weights are on the nodes of the workers that
# multiply them (move_pages, asked by the engine itself); the logits are the bits that this machine gives.
# One more machine has a pool of 1 GiB pages, which the build machine has not: test_os_region uses it.
# Needs qemu-system-x86, busybox-static and cpio; fetches Debian's cloud kernel (apt-get download, not installed). Four minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
work=build/emulated
mkdir -p "$work"
for tool in qemu-system-x86_64 busybox cpio python3; do
    command -v $tool >/dev/null || { echo "run.sh: $tool is missing: apt-get install qemu-system-x86 busybox-static cpio python3" >&2; exit 2; }
done

kernel=$(ls "$work"/boot/vmlinuz-* 2>/dev/null | head -1) || true
if [ -z "$kernel" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    (cd "$work" && apt-get download "$package" >/dev/null 2>&1 && dpkg-deb -x "$package"_*.deb .)
    kernel=$(ls "$work"/boot/vmlinuz-* | head -1)
fi

# An initramfs of busybox, the program, the test, the model, and the libraries that ldd names.
root=$work/root
rm -rf "$root"
mkdir -p "$root"/{bin,dev,proc,sys,tmp}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$build/modchip" "$build/tests/test_workers" "$build/tests/test_os_region" models/tiny-dsv4.gguf "$root/bin/"
ldd "$build/modchip" "$build/tests/test_workers" "$build/tests/test_os_region" | grep -oE '/[^ ]+\.so[^ ]*' | sort -u | while read -r lib; do
    mkdir -p "$root$(dirname "$lib")"
    cp -L "$lib" "$root$lib"
done
logits=(logits -m MODEL --tokens "1,2,3,4,5,6,7,8,9" --quiet -o)
cat >"$root/init" <<END
#!/bin/busybox sh
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
cd /tmp
if busybox grep -q hugepagesz /proc/cmdline; then
    /bin/test_os_region 2>&1
    echo "REGION \$?"
    busybox poweroff -f
fi
echo "TOPO \$(/bin/modchip topo --json)"
/bin/test_workers 2>&1
echo "WORKERS \$?"
/bin/modchip ${logits[*]/MODEL//bin/tiny-dsv4.gguf} /tmp/l >/dev/null
echo "LOGITS \$(busybox md5sum </tmp/l)"
/bin/modchip ${logits[*]/MODEL//bin/tiny-dsv4.gguf} /tmp/l --log info 2>&1 >/dev/null | busybox grep numa
busybox poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs.gz"
"$build/modchip" "${logits[@]/MODEL/models/tiny-dsv4.gguf}" "$work/logits" >/dev/null
want=$(md5sum <"$work/logits")

failed=0
machine() { # machine NAME NODES L3 THREADS qemu options...
    local name=$1 nodes=$2 l3=$3 threads=$4 log=$work/$1.log
    shift 4
    timeout 300 qemu-system-x86_64 -M q35 -accel tcg -nodefaults -serial stdio -display none -no-reboot "$@" \
        -kernel "$kernel" -initrd "$work/initramfs.gz" -append "console=ttyS0 quiet panic=-1" </dev/null >"$log" 2>&1 || true
    python3 - "$log" "$nodes" "$l3" "$threads" "$want" <<'END' || { failed=1; echo "$name: FAILED, see $log"; return; }
import json, re, sys
log, nodes, l3, threads, want = open(sys.argv[1], errors="replace").read().replace("\r", ""), *map(int, sys.argv[2:5]), sys.argv[5]
topo = json.loads(re.search(r"^TOPO (\{.*\})$", log, re.M).group(1))
seats = topo["threads"]
assert (topo["nodes"], topo["l3_groups"], len(seats)) == (nodes, l3, threads), topo
assert len({t["core"] for t in seats}) == threads, "a core has two workers"
for key in ("node", "l3"):
    assert [t[key] for t in seats] == sorted(t[key] for t in seats), key
assert re.search(r"^WORKERS 0$", log, re.M), "test_workers"
assert f"LOGITS {want}\n" in log, "other logits"
there = [(int(n), float(share)) for n, share in re.findall(r"engine: numa node=(\d+) mib=\d+ there=([0-9.]+)", log)]
assert [n for n, _ in there] == (list(range(nodes)) if nodes > 1 else []), there
assert all(share == 1 for _, share in there), there
assert re.search(r"engine: numa mode=local", log), "mode"
END
    echo "$name: $threads workers on $nodes nodes, $l3 L3 groups: plan, threads, pages, weights and logits are right"
}

node() { # node NUMBER CPUS MIB: the options of one node
    echo "-object memory-backend-ram,id=m$1,size=$3M -numa node,nodeid=$1,cpus=$2,memdev=m$1"
}
# shellcheck disable=SC2046  # lists of options
machine 2nodes-smt 2 2 8 -cpu Skylake-Server -m 1024 -smp 16,sockets=2,cores=4,threads=2 $(node 0 0-7 512) $(node 1 8-15 512)
# shellcheck disable=SC2046
machine 4nodes 4 4 16 -cpu EPYC -m 1280 -smp 16,sockets=2,dies=2,cores=4,threads=1 \
    $(node 0 0-3 512) $(node 1 4-7 256) $(node 2 8-11 256) $(node 3 12-15 256)
# shellcheck disable=SC2046
machine memory-only-node 1 1 8 -cpu EPYC -m 1024 -smp 8,sockets=1,dies=1,cores=8,threads=1 $(node 0 0-7 768) \
    -object memory-backend-ram,id=m1,size=256M -numa node,nodeid=1,memdev=m1

log=$work/1g-pages.log
timeout 300 qemu-system-x86_64 -M q35 -accel tcg -nodefaults -serial stdio -display none -no-reboot -cpu max -m 4096 -smp 2 -kernel "$kernel" \
    -initrd "$work/initramfs.gz" -append "console=ttyS0 quiet panic=-1 hugepagesz=1G hugepages=1" </dev/null >"$log" 2>&1 || true
if grep -q "^pages of 1 GiB: used" "$log" && grep -q "^REGION 0" "$log"; then
    echo "1g-pages: regions take the page of 1 GiB first, lesser ones after it"
else
    failed=1
    echo "1g-pages: FAILED, see $log"
fi
[ $failed = 0 ]
