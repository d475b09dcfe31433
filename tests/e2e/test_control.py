#!/usr/bin/env python3
"""Steering a run or chat while it speaks: `modchip ctl`, the socket, the 32-byte file that programs share.

    test_control.py PROGRAM MODELS_DIR DATA_DIR [unittest options]
"""
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from test_cli import HELDOUT, MODEL, PROGRAM, Cli

ANY = 60  # seconds that are enough on any machine


class Control(Cli):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.running = []

    def tearDown(self):
        for p in self.running:
            if p.poll() is None:
                p.kill()
            p.communicate()
        super().tearDown()

    def speak(self, *args, wait=True, **env):
        """A chat that goes on speaking, with its socket open."""
        with open(self.write("questions", "Tell me a story.\n/reset\n" * 4000), "rb") as f:
            p = subprocess.Popen([PROGRAM, "chat", "--think", "off", *args], stdin=f, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 env={**self.env, **env}, cwd=self.dir)
        self.running.append(p)
        if wait:
            self.until(lambda: self.call("ctl", *self.at(args), "ping", **env)[0] == 0 or p.poll() is not None)
            self.assertIsNone(p.poll())
        return p

    @staticmethod
    def at(args):
        return args[args.index("--control"):][:2] if "--control" in args else ()

    def until(self, true):
        deadline = time.time() + ANY
        while not true():
            self.assertLess(time.time(), deadline, "it does not happen")
            time.sleep(0.02)

    def test_get_set_stats_watch_stop(self):
        p = self.speak()
        got = self.json("ctl", "get")
        self.assertEqual((got["settings"]["moe_top_k"], got["settings"]["moe_band"], got["lossy"], got["profile"]), (6, [2, 4], False, "lossless"))
        self.assertEqual(set(got["sources"].values()), {"start"})
        self.assertIsNone(got["cost"])
        self.assertIn("modchip dials -m " + MODEL, got["cost_note"])
        self.assertEqual(self.json("ctl", "stats")["moe_experts_dropped_total"], 0)
        done = self.json("ctl", "set", "moe_top_k=4", "moe_inner_k=4", "moe_rescale=rho=0.25", "moe_band=3:4")
        self.assertEqual((done["applied"], done["lossy"]), (True, True))
        self.assertEqual(set(done["changed"]), {"moe_top_k", "moe_inner_k", "moe_rescale", "moe_band"})
        got = self.json("ctl", "get", "moe_rescale", "moe_band")
        self.assertEqual(got["settings"], {"moe_band": [3, 4], "moe_rescale": {"rho": 0.25}})
        self.assertEqual(got["sources"], {"moe_band": "socket", "moe_rescale": "socket"})
        self.until(lambda: self.json("ctl", "stats")["moe_experts_dropped_total"] > 0)
        self.until(lambda: self.json("ctl", "stats")["weight_bytes_per_token"] < self.json("ctl", "stats")["weight_bytes_per_token_lossless"])
        self.refused(2, "moe_top_k must be 1..6, got 9", "ctl", "set", "moe_top_k=9", "moe_scope=all")
        self.refused(2, "threads can only be given at the start", "ctl", "set", "threads=9")
        self.refused(2, "moe_topk there is no such setting", "ctl", "set", "moe_topk=5")
        self.assertEqual(self.json("ctl", "get", "moe_scope")["settings"], {"moe_scope": "decode"})
        watch = subprocess.Popen([PROGRAM, "ctl", "watch", "settings", "stats"], stdout=subprocess.PIPE, env=self.env, cwd=self.dir)
        self.running.append(watch)
        self.assertEqual(json.loads(watch.stdout.readline())["event"], "stats")
        self.ok("ctl", "set", "profile=top5")
        while (event := json.loads(watch.stdout.readline()))["event"] != "settings":
            pass
        self.assertEqual((event["changed"]["moe_top_k"], event["source"]), (5, "socket"))
        self.assertEqual(self.json("ctl", "get")["profile"], "top5")
        self.assertEqual(self.json("ctl", "describe", "swiglu_exps")["swiglu_exps"]["range"], "0..128")
        self.ok("ctl", "reset")
        self.assertFalse(self.json("ctl", "get")["lossy"])
        path = os.path.join(self.sockets, "modchip", f"{p.pid}.sock")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        self.assertEqual(self.json("ctl", "stop"), {})
        self.assertEqual(p.wait(ANY), 130)
        self.assertEqual(watch.wait(ANY), 0)
        self.assertEqual(os.listdir(os.path.dirname(path)), [])
        self.refused(1, "no running modchip answers", "ctl", "get")
        self.refused(1, "nobody listens there", "ctl", "get", "--control", path)

    def test_rows_that_save_nothing_are_said_and_prepared(self):
        self.speak()
        if not self.json("ctl", "stats")["rows_skipped_in_memory_exps"]:  # this CPU packs
            note = self.json("ctl", "set", "swiglu_exps=80", "swiglu_shexp=80")["note"]
            self.assertIn("none is skipped in memory: up is packed there; started with --swiglu-exps 128 --swiglu-shexp 128 they are", note)
            self.assertEqual(self.json("ctl", "stats")["note"], note)
            self.assertEqual(self.json("ctl", "get")["note"], note)
        self.ok("ctl", "stop", "now")
        self.assertEqual(self.running[0].wait(ANY), 130)
        cfg = self.path("moe.bin")
        p = self.speak("--swiglu-exps", "128", "--swiglu-shexp", "128", "--moe-cfg", cfg)
        self.assertFalse(self.json("ctl", "get")["lossy"])
        self.assertTrue(self.json("ctl", "stats")["rows_skipped_in_memory_exps"])
        self.assertNotIn("note", self.json("ctl", "set", "swiglu_exps=80", "swiglu_shexp=80"))
        self.until(lambda: self.json("ctl", "stats")["moe_bytes_saved_total"] > 0)
        with open(cfg, "r+b") as f:  # the file as well
            f.write(struct.pack("<8i", 5, 5, 0, 2, 4, 1, 64, 64))
        self.until(lambda: self.json("ctl", "get", "swiglu_exps")["sources"] == {"swiglu_exps": "file"})
        stats = self.json("ctl", "stats")
        self.assertEqual((stats["moe_cfg_accepts_total"], stats["moe_cfg_rejects_total"]), (1, 0))
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(ANY), 130)
        self.assertFalse(os.path.exists(cfg))

    def test_names_that_are_taken(self):
        path = self.path("c.sock")
        p = self.speak("--control", path)
        self.refused(1, "another program listens there", "run", "-p", "x", "--quiet", "--control", path)
        p.kill()
        p.wait()
        self.assertTrue(os.path.exists(path))
        self.refused(1, "nobody listens there", "ctl", "--control", path, "ping")
        self.speak("--control", path)  # what a killed program left is replaced
        self.ok("ctl", "--control", path, "stop")
        self.running[-1].wait(ANY)
        self.assertFalse(os.path.exists(path))
        self.refused(1, "no socket; it is left alone", "run", "-p", "x", "--quiet", "--control", self.write("dear", "file"))
        self.assertEqual(self.read("dear"), b"file")
        self.refused(2, "at most 107 bytes", "run", "-p", "x", "--quiet", "--control", self.path("x" * 120))
        self.ok("run", "-p", "Hello!", "--think", "off", "-n", "2", "--control", "off")
        self.refused(2, "nobody to talk to", "ctl", "ping", "--control", "off")

    def test_several_programs(self):
        self.speak()
        path = self.path("second.sock")
        self.speak("--control", path)
        self.ok("ctl", "ping")  # only one is at the usual place
        self.speak(wait=False)
        self.until(lambda: self.call("ctl", "ping")[0] == 2)
        code, _, err = self.call("ctl", "get")
        self.assertEqual(code, 2)
        self.assertIn("2 programs are running; choose one with --control PATH", err)
        for p in (self.running[0], self.running[2]):
            self.assertIn(f"pid {p.pid}, {MODEL}", err)
        self.running[0].kill()  # a dead one is passed over, and its socket is swept away by the next
        self.running[0].wait()
        self.ok("ctl", "ping")
        self.speak(wait=False)
        self.until(lambda: not os.path.exists(os.path.join(self.sockets, "modchip", f"{self.running[0].pid}.sock")))

    def test_mistakes(self):
        self.refused(2, "ctl needs a verb", "ctl")
        self.refused(2, "there is no 'gett'", "ctl", "gett")
        self.refused(2, "takes key=value", "ctl", "set")
        self.refused(2, "takes key=value", "ctl", "set", "moe_top_k")
        self.refused(2, "no number behind rho=", "ctl", "set", "moe_rescale=rho=x")
        self.refused(2, "takes nothing further", "ctl", "stats", "all")
        self.refused(1, "no running modchip answers", "ctl", "stop")

    def test_the_cost_of_the_profile_in_force(self):
        kept = self.json("dials", "-f", HELDOUT, "--chunks", "1", "-n", "4", "-r", "1", "--json", "--quiet", "--moe-top-k", "3")
        rows = {r["profile"]: r for r in kept["profiles"]}
        self.speak()
        cost = self.json("ctl", "get")["cost"]
        self.assertEqual((cost["profile"], cost["kl_mean"], cost["tokens"]), ("lossless", 0, 255))
        self.ok("ctl", "set", "profile=top4")
        cost = self.json("ctl", "get")["cost"]
        for key in ("kl_mean", "kl_p99", "top1_match", "delta_ppl", "decode_tok_s", "bytes_per_token"):
            self.assertEqual(cost[key], rows["top4"][key])
        self.ok("ctl", "set", "moe_top_k=3", "moe_inner_k=3")
        self.assertEqual(self.json("ctl", "get")["cost"]["kl_mean"], rows["options"]["kl_mean"])
        self.ok("ctl", "set", "moe_top_k=2")
        got = self.json("ctl", "get")
        self.assertIsNone(got["cost"])
        self.assertIn("these settings were not measured", got["cost_note"])
        # another model of the same name has another file
        files = os.listdir(self.path(".cache/modchip"))
        self.assertEqual(len(files), 1)
        with open(MODEL, "rb") as f:
            bytes_ = bytearray(f.read())
        bytes_[-1] ^= 1
        other = self.write("tiny-dsv4.gguf", bytes(bytes_))
        self.speak("-m", other, "--control", self.path("o.sock"))
        self.assertIn("nothing was measured", self.json("ctl", "--control", self.path("o.sock"), "get")["cost_note"])
        code, out, err = self.call("dials", "-f", HELDOUT, "--chunks", "1", "-n", "1", "-r", "1", XDG_CACHE_HOME="/proc/nowhere")
        self.assertEqual(code, 0, err)
        self.assertIn("the table is not kept", err)

    def test_stop_while_somebody_may_type(self):
        for how in ("ctl", "term"):
            master, slave = pty.openpty()
            p = subprocess.Popen([PROGRAM, "chat", "--think", "off"], stdin=slave, stdout=slave, stderr=slave, env={**self.env, "TERM": "dumb"}, cwd=self.dir,
                                 start_new_session=True)
            self.running.append(p)
            os.close(slave)
            seen = b""
            while b"> " not in seen.split(b"\n")[-1]:
                seen += os.read(master, 1000)
            if how == "ctl":
                self.ok("ctl", "stop")
            else:
                p.send_signal(signal.SIGTERM)
            self.assertEqual(p.wait(ANY), 130, seen)
            self.assertEqual(os.listdir(os.path.join(self.sockets, "modchip")), [])
            os.close(master)

    def test_hostile_callers_while_it_speaks(self):
        p = self.speak()
        path = os.path.join(self.sockets, "modchip", f"{p.pid}.sock")
        before = self.json("ctl", "get")["generation"]
        junk = [b"", os.urandom(5000), b'{"id":1,"op":"set","values":{"moe_top_k":1', b"x" * (1 << 20), b'{"id":1,"op":"describe"}\n' * 3000,
                b'{"id":1,"op":"set","values":{"moe_top_k":1,"moe_inner_k":11}}\n', b"\n" * 5000]
        held = []
        for i in range(1000):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(0.05)
            try:
                s.connect(path)
                s.sendall(junk[i % len(junk)])
            except OSError:
                pass
            if i % 5 == 0:
                held.append(s)
            else:
                s.close()
        self.until(lambda: self.call("ctl", "ping")[0] == 0)
        self.assertEqual(self.json("ctl", "get")["generation"], before)
        spoken = self.json("ctl", "stats")["generated_tokens_total"]
        self.until(lambda: self.json("ctl", "stats")["generated_tokens_total"] > spoken)
        self.assertIsNone(p.poll())
        for s in held:
            s.close()

    def test_programs_that_share_the_default_file(self):
        """In a /tmp of their own; the one that made the file ends first."""
        script = self.write("share.py", f'''
import os, struct, subprocess, sys, time
cfg = "/tmp/dsv4_moe_cfg.bin"
def until(true, what):
    end = time.time() + {ANY}
    while not true():
        if time.time() > end: sys.exit(what)
        time.sleep(0.02)
def start(*more):
    with open("questions", "rb") as f:
        return subprocess.Popen([{PROGRAM!r}, "chat", "--think", "off", *more], stdin=f, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def content():
    try: return struct.unpack("<8i", open(cfg, "rb").read(32))
    except (OSError, struct.error): return None
a = start("--control", "a.sock")
until(lambda: content() == (6, 6, 0, 2, 4, 1, 0, 0), "not created")
b = start("--control", "b.sock")
until(lambda: os.path.exists("b.sock"), "no second one")
open(cfg, "r+b").write(struct.pack("<8i", 5, 5, 0, 3, 43, 1, 80, 80))
def k(sock):
    p = subprocess.run([{PROGRAM!r}, "ctl", "--control", sock, "get", "moe_top_k", "swiglu_exps"], capture_output=True)
    return b'"moe_top_k": 5' in p.stdout and b'"swiglu_exps": 80' in p.stdout
until(lambda: k("a.sock") and k("b.sock"), "not taken by both")
a.terminate(); a.wait()
until(lambda: content() is not None, "the file went with its maker")
open(cfg, "r+b").write(struct.pack("<8i", 5, 5, 0, 3, 43, 1, 80, 80))
until(lambda: k("b.sock"), "not taken")
os.unlink(cfg)
until(lambda: content() == (5, 5, 0, 3, 4, 1, 80, 80), "not made again")
b.terminate(); b.wait()
sys.exit("left behind" if os.path.exists(cfg) else 0)
''')
        self.write("questions", "Tell me a story.\n/reset\n" * 4000)
        env = {k: v for k, v in self.env.items() if k != "MODCHIP_MOE_CFG"}
        own_tmp = "mount -t tmpfs tmpfs /tmp && exec python3 -"
        work = os.path.join(os.getcwd(), f"control-{os.getpid()}")
        os.makedirs(work, exist_ok=True)
        try:
            os.replace(self.path("questions"), os.path.join(work, "questions"))
            if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
                self.skipTest("no mount namespace to be had")
            with open(script, "rb") as f:
                r = subprocess.run(["unshare", "-m", "sh", "-c", own_tmp], stdin=f, capture_output=True, cwd=work,
                                   env={**env, "HOME": work, "XDG_CONFIG_HOME": work, "XDG_RUNTIME_DIR": work}, timeout=300)
            self.assertEqual((r.returncode, r.stderr), (0, b""))
        finally:
            subprocess.run(["rm", "-rf", work])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
