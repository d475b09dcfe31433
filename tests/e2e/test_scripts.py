#!/usr/bin/env python3
"""The shell scripts on described machines: a tree of /sys, /proc, /run and /etc made here.

    test_scripts.py SCRIPTS_DIR [unittest options]

A file of a described machine keeps whatever number is written into it, as a kernel with enough memory does; a link to
/dev/null is a pool of none that takes no number. Standard library only.
"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.path.abspath(sys.argv[1])
MIB2, GIB1 = "hugepages-2048kB", "hugepages-1048576kB"


class Machine(unittest.TestCase):
    """A described machine in self.root."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="modchip-machine-")
        self.put("proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable: 33554432 kB\n")
        self.put("proc/self/limits", "Max locked memory         8388608              8388608              bytes     \n")
        self.put("proc/sys/vm/compact_memory", "")
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        os.makedirs(self.path("run"))

    def tearDown(self):
        shutil.rmtree(self.root)

    def path(self, name):
        return os.path.join(self.root, name)

    def put(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)

    def get(self, name):
        with open(self.path(name), encoding="ascii") as f:
            return f.read()

    def pool(self, folder, total, free, size=MIB2):
        self.put(f"{folder}/{size}/nr_hugepages", f"{total}\n")
        self.put(f"{folder}/{size}/free_hugepages", f"{free}\n")

    def node(self, i, total=0, free=0, size=MIB2, cpus="0-7\n"):
        self.pool(f"sys/devices/system/node/node{i}/hugepages", total, free, size)
        self.put(f"sys/devices/system/node/node{i}/cpulist", cpus)

    def pages(self, i, size=MIB2):
        return int(self.get(f"sys/devices/system/node/node{i}/hugepages/{size}/nr_hugepages"))


class Hugepages(Machine):
    def call(self, *args):
        p = subprocess.run([os.path.join(SCRIPTS, "hugepages.sh"), *args], env={**os.environ, "MODCHIP_SYSROOT": self.root},
                           capture_output=True, text=True, timeout=60)
        return p.returncode, p.stdout, p.stderr

    def test_show(self):
        self.node(0, 512, 128)
        self.pool("sys/kernel/mm/hugepages", 512, 128)
        code, out, err = self.call()
        self.assertEqual((code, err), (0, ""))
        self.assertIn("pages of 2 MiB on node0: 512 (1.0 GiB), free 128 (0.2 GiB)", out)
        self.assertIn("transparent huge pages: madvise", out)
        self.assertIn("memory available: 32.0 GiB", out)
        self.assertIn("may lock: 8192 KiB", out)

    def test_show_tells_how_to_allow_transparent_pages(self):
        self.node(0)
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
        self.assertIn("echo madvise >", self.call("show")[1])

    def test_reserve_spreads_over_nodes_and_release_puts_back(self):
        self.node(0, 10, 0)
        self.node(1, 20, 5)
        self.node(2, cpus="\n")  # memory without CPUs
        code, out, _ = self.call("reserve", "1G")  # 512 pages: 256 a node, beside those in use
        self.assertEqual(code, 0)
        self.assertIn("512 pages of 2 MiB (1.0 GiB)", out)
        self.assertEqual([self.pages(i) for i in range(3)], [266, 271, 0])
        self.assertIn("reserved by this script", self.call("show")[1])
        self.assertEqual(self.call("reserve", "2G")[0], 0)  # on top; what was before the first one stays known
        code, out, _ = self.call("release")
        self.assertEqual((code, out), (0, "given back\n"))
        self.assertEqual([self.pages(i) for i in range(3)], [10, 20, 0])
        self.assertIn("nothing was reserved", self.call("release")[1])

    def test_enough_free_pages_change_nothing(self):
        self.node(0, 1000, 700)
        self.assertIn("already free", self.call("reserve", "1.2G")[1])
        self.assertEqual(self.pages(0), 1000)
        self.assertFalse(glob.glob(self.path("run/modchip-hugepages*")))

    def test_shortage_puts_everything_back(self):
        self.node(0, 7, 7)
        self.node(1)
        nr = self.path(f"sys/devices/system/node/node1/hugepages/{MIB2}/nr_hugepages")
        os.remove(nr)
        os.symlink("/dev/null", nr)
        code, out, err = self.call("reserve", "64M")
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^hugepages.sh: only 16 of 32 pages could be had: .* Nothing has changed\n$")
        self.assertEqual(self.pages(0), 7)
        self.assertFalse(glob.glob(self.path("run/modchip-hugepages*")))

    def test_both_sizes_are_given_back(self):
        self.node(0, 3, 0)
        self.node(0, 1, 0, GIB1)
        self.assertEqual(self.call("reserve", "64M")[0], 0)
        self.assertEqual(self.call("--1g", "reserve", "4G")[0], 0)
        self.assertEqual((self.pages(0), self.pages(0, GIB1)), (35, 5))
        self.assertEqual(self.call("release")[:2], (0, "given back\n"))
        self.assertEqual((self.pages(0), self.pages(0, GIB1)), (3, 1))

    def test_large_pages(self):
        self.node(0, 0, 0, GIB1)
        code, out, _ = self.call("reserve", "--1g", "2500M")
        self.assertEqual(code, 0)
        self.assertIn("3 pages of 1024 MiB", out)
        self.assertEqual(self.pages(0, GIB1), 3)
        self.assertEqual(self.call("reserve", "1G")[0], 1)  # no pool of 2 MiB

    def test_machine_without_nodes(self):
        self.pool("sys/kernel/mm/hugepages", 0, 0)
        self.assertEqual(self.call("reserve", "10M")[0], 0)
        self.assertEqual(self.get(f"sys/kernel/mm/hugepages/{MIB2}/nr_hugepages"), "5\n")

    def test_persist(self):
        self.node(0)
        self.assertEqual(self.call("persist", "8G")[0], 0)
        self.assertIn("vm.nr_hugepages = 4096\n", self.get("etc/sysctl.d/60-modchip-hugepages.conf"))
        self.assertIn("after a restart: 4096 pages", self.call("show")[1])
        code, _, err = self.call("persist", "--1g", "8G")
        self.assertEqual(code, 1)
        self.assertIn("hugepagesz=1G hugepages=8", err)
        self.assertEqual(self.call("persist", "off")[0], 0)
        self.assertFalse(os.path.exists(self.path("etc/sysctl.d/60-modchip-hugepages.conf")))

    def test_wrong_arguments(self):
        self.node(0)
        for args in (["fly"], ["reserve"], ["reserve", "many"], ["reserve", "0"], ["reserve", "-5G"], ["reserve", "1Q"], ["show", "1G"],
                     ["release", "1G"], ["reserve", "1G", "2G"], ["--huge"]):
            code, out, err = self.call(*args)
            self.assertEqual((args, code, out), (args, 2, ""))
            self.assertRegex(err, r"^hugepages.sh: [^\n]+\n$")
        self.assertEqual(self.pages(0), 0)

    def test_without_rights(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", os.path.join(SCRIPTS, "hugepages.sh"), "release"],
                           capture_output=True, text=True, timeout=60)
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        self.assertIn("needs root: sudo", p.stderr)


PROGRAM = r"""#!/bin/sh
[ "$1" != plan ] || { shift; echo "plan:$*" >>"$LOG"; echo '{"need_bytes": 9, "hugepage_bytes": 4294967296, "x": 1}'; exit 0; }
if [ "$1" = doctor ]; then
    shift
    echo "doctor:$*" >>"$LOG"
    case $* in *wrong*) exit 2 ;; *huge*) echo '{"findings": [{"check": "model", "state": "blocks", "found": "too \\"big\\"", "remedy": "less"}]}'; exit 1 ;; esac
    echo '{"findings": [{"check": "cpu", "state": "ok", "found": "fine", "remedy": null}, {"check": "cores", "state": "slower", "found": "one", "remedy": "more"}]}'
    exit 0
fi
echo "run:$*" >>"$LOG"
cat "$MODCHIP_SYSROOT/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor" >>"$LOG"
cat "$MODCHIP_SYSROOT/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages" >>"$LOG"
if [ "$1" = chat ]; then cat >>"$LOG"; fi
if [ "$2" = interrupt ]; then # a shell could not catch what was ignored when it started
    exec python3 -c 'import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(9))
print("up", flush=True)
time.sleep(60)'
fi
if [ "$2" = wait ]; then trap 'echo stopped >>"$LOG"; exit 7' TERM; echo up; while :; do sleep 0.05; done; fi
exit 3
"""


class Launcher(Machine):
    def setUp(self):
        super().setUp()
        self.put("program", PROGRAM)
        os.chmod(self.path("program"), 0o755)
        self.put("log", "")
        self.node(0, 6, 6)
        self.pool("sys/kernel/mm/hugepages", 6, 6)
        for cpu, governor in enumerate(("powersave", "schedutil", "performance")):
            self.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", governor + "\n")
            self.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_available_governors", "performance schedutil powersave\n")

    def governors(self):
        return [self.get(f"sys/devices/system/cpu/cpu{i}/cpufreq/scaling_governor").strip() for i in range(3)]

    def start(self, *args, **options):
        env = {**os.environ, "MODCHIP_SYSROOT": self.root, "MODCHIP_PROGRAM": self.path("program"), "LOG": self.path("log")}
        return subprocess.Popen([os.path.join(SCRIPTS, "modchip.sh"), *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **options)

    def call(self, *args, stdin=""):
        p = self.start(*args)
        out, err = p.communicate(stdin, timeout=60)
        return p.returncode, out, err

    def untouched(self):
        self.assertEqual(self.governors(), ["powersave", "schedutil", "performance"])
        self.assertEqual(self.pages(0), 6)
        self.assertFalse(glob.glob(self.path("run/modchip-hugepages*")))

    def test_without_setup_nothing_is_changed(self):
        self.assertEqual(self.call("run", "-p", "two words")[0], 3)
        self.assertEqual(self.get("log"), "run:run -p two words\npowersave\n6\n")
        self.untouched()

    def test_setup_is_put_back(self):
        code, _, err = self.call("--setup", "chat", "-m", "a model", "--ctx", "100", "--think", "off", stdin="hello\n")
        self.assertEqual(code, 3, err)
        self.assertIn("modchip.sh: cores: one; more\n", err)
        self.assertNotIn("fine", err)
        self.assertEqual(self.get("log"), "plan:--json --quiet -m a model --ctx 100\n"
                         "doctor:--json --quiet -m a model --ctx 100 --quick\nrun:chat -m a model --ctx 100 --think off\n"
                         "performance\n2049\nhello\n")
        self.untouched()

    def test_stopped_by_a_signal(self):
        p = self.start("--setup", "run", "wait")
        self.assertEqual(p.stdout.readline(), "up\n")
        self.assertEqual(self.governors(), ["performance"] * 3)
        p.terminate()
        self.assertEqual(p.wait(timeout=30), 7)
        p.communicate()
        self.assertTrue(self.get("log").endswith("stopped\n"))
        self.untouched()

    def test_interrupted_without_a_terminal(self):
        p = self.start("--setup", "run", "interrupt", start_new_session=True)
        self.assertEqual(p.stdout.readline(), "up\n")
        p.send_signal(signal.SIGINT)  # to the launcher alone: it passes it on
        self.assertEqual(p.wait(timeout=30), 9)
        p.communicate()
        self.untouched()

    def test_reserved_before_is_left_alone(self):
        env = {**os.environ, "MODCHIP_SYSROOT": self.root}
        subprocess.run([os.path.join(SCRIPTS, "hugepages.sh"), "reserve", "1G"], env=env, check=True, capture_output=True)
        before = self.pages(0)
        code, _, err = self.call("--setup", "run")
        self.assertEqual(code, 3)
        self.assertIn("reserved before", err)
        self.assertEqual(self.pages(0), before)
        self.assertTrue(glob.glob(self.path("run/modchip-hugepages*")))

    def test_shortage_goes_on(self):
        nr = self.path(f"sys/devices/system/node/node0/hugepages/{MIB2}/nr_hugepages")
        os.remove(nr)
        os.symlink("/dev/null", nr)
        code, _, err = self.call("--setup", "run")
        self.assertEqual(code, 3)
        self.assertIn("goes on without reserved huge pages", err)
        self.assertEqual(self.governors(), ["powersave", "schedutil", "performance"])

    def test_what_cannot_run_is_not_started(self):
        code, _, err = self.call("--setup", "run", "-m", "huge")
        self.assertEqual(code, 1)
        self.assertIn('modchip.sh: model: too \\"big\\"; less\n', err)
        self.assertNotIn("run:", self.get("log"))
        self.untouched()

    def test_every_way_to_write_an_option(self):
        self.call("--setup", "run", "-p", "-m", "--model=A", "--ctx=9", "-t2", "--raw", "-n", "3", "--pin", "0,1", "--temp", "0", "--io", "mmap")
        self.assertIn("plan:--json --quiet --model=A --ctx=9 -t2 --pin 0,1 --io mmap\n"
                      "doctor:--json --quiet --model=A --ctx=9 -t2 --pin 0,1 --io mmap --quick\nrun:run -p -m ", self.get("log"))

    def test_transparent_pages_need_no_pool(self):
        for form in (["--hugepages", "off"], ["--hugepages=thp"]):
            self.assertNotIn("huge pages: reserve", self.call("--setup", "--dry-run", "run", *form)[1])

    def test_a_wrong_line_is_the_command_s_to_refuse(self):
        self.assertEqual(self.call("--setup", "run", "-m", "wrong")[0], 3)
        self.assertIn("run:run -m wrong", self.get("log"))

    def test_dry_run(self):
        code, out, _ = self.call("--setup", "--dry-run", "run", "-p", "hi there")
        self.assertEqual(code, 0)
        self.assertIn("arguments: 'run' '-p' 'hi there'\nhuge pages: reserve 4098M, release them at the end\n"
                      "governor: performance on 2 CPUs, put back at the end\n"
                      "doctor: cores: one; more\n", out)
        self.assertNotIn("run:", self.get("log"))
        self.untouched()

    def test_wrong_use(self):
        code, _, err = self.call("--setup", "inspect")
        self.assertEqual((code, err), (2, "modchip.sh: --setup prepares run, chat and bench; 'inspect' needs nothing\n"))
        self.untouched()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
