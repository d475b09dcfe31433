#!/usr/bin/env python3
"""The built program on the model that ships with it: answers, figures, round trips, mistakes.

    test_cli.py PROGRAM MODELS_DIR DATA_DIR [unittest options]

Each case starts the program with an environment of its own and looks at exit code, stdout and stderr. Standard library only.
"""
import json
import math
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

PROGRAM, MODELS, DATA = (os.path.abspath(p) for p in sys.argv[1:4])
MODEL = os.path.join(MODELS, "tiny-dsv4.gguf")
HELDOUT = os.path.join(DATA, "models", "heldout.txt")
with open(os.path.join(DATA, "models", "expected.jsonl"), encoding="utf-8") as rows:
    EXPECTED = [json.loads(line) for line in rows]


class Cli(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="modchip-e2e-")
        self.sockets = tempfile.mkdtemp(prefix="modchip-run-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MODCHIP_")}
        self.env = {k: v for k, v in self.env.items() if k not in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME")}
        self.env.update(XDG_CONFIG_HOME=self.dir, HOME=self.dir, XDG_RUNTIME_DIR=self.sockets, MODCHIP_MODEL=MODEL, MODCHIP_THREADS="2",
                        MODCHIP_MOE_CFG="off")  # the default file is everybody's

    def tearDown(self):
        shutil.rmtree(self.dir)
        shutil.rmtree(self.sockets)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def read(self, path):
        with open(os.path.join(self.dir, path), "rb") as f:
            return f.read()

    def call(self, *args, stdin=b"", **env):
        p = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, env={**self.env, **env}, cwd=self.dir, timeout=600)
        return p.returncode, p.stdout, p.stderr.decode()

    def ok(self, *args, **kw):
        code, out, err = self.call(*args, **kw)
        self.assertEqual(code, 0, err)
        return out

    def json(self, *args, **kw):
        return json.loads(self.ok(*args, **kw))

    def refused(self, want_code, says, *args, **kw):
        """One line on stderr that says so, nothing on stdout."""
        code, out, err = self.call(*args, **kw)
        self.assertEqual(code, want_code, err)
        self.assertEqual(out, b"")
        lines = [line for line in err.splitlines() if "no model given" not in line]
        self.assertEqual(len(lines), 1, err)
        self.assertIn(says, lines[0])
        self.assertTrue(lines[0].startswith("modchip: "), err)


    def interrupt(self, p, after):
        """Ctrl-C, some time after the program has begun to listen for it (Linux: its signal mask says so)."""
        for _ in range(600):
            with open(f"/proc/{p.pid}/status") as f:
                caught = next(line for line in f if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) & 2 or p.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(after)
        p.send_signal(signal.SIGINT)
        return p.communicate(timeout=120)


class Answers(Cli):
    def test_expected_answers(self):
        """Greedy answers, as text in the chat form and as ids of the raw prompt."""
        for i, row in enumerate(EXPECTED):
            with self.subTest(row["id"]):
                args = ["--temp", "0", "--think", "off", "-p", row["user"]]
                if row["system"]:
                    args += ["--system", row["system"]]
                self.assertEqual(self.ok("run", *args).decode(), row["output"])
                if i % 6 == 0:
                    got = self.json("run", "--json", "--temp", "0", "--raw", "-p", row["prompt"])
                    self.assertEqual(got["token_ids"], row["output_tokens"])
                    self.assertEqual(got["prompt_tokens"], len(row["prompt_tokens"]))
                    self.assertEqual((got["text"], got["finish_reason"]), (row["output"], "stop"))

    def test_same_answer_whatever_the_settings(self):
        row = EXPECTED[27]
        for extra in (["-t", "1"], ["-t", "3", "--pin", "off"], ["--batch", "3"], ["--isa", "scalar"], ["--kv", "f32"], ["--io", "mmap"], ["--layout", "file"], ["--arith", "exact"]):
            with self.subTest(extra):
                got = self.ok("run", "--temp", "0", "--think", "off", "--system", row["system"], "-p", row["user"], *extra)
                self.assertEqual(got.decode(), row["output"])

    def test_prompt_from_file_and_stdin(self):
        row = EXPECTED[14]
        args = ["run", "--temp", "0", "--think", "off"]
        self.assertEqual(self.ok(*args, "-f", self.write("q.txt", row["user"])).decode(), row["output"])
        self.assertEqual(self.ok(*args, stdin=row["user"].encode()).decode(), row["output"])

    def test_limits(self):
        got = self.json("run", "--json", "--temp", "0", "--think", "off", "-n", "3", "-p", "Count to 7.")
        self.assertEqual((got["tokens"], got["finish_reason"]), (3, "length"))
        got = self.json("run", "--json", "--temp", "0", "--think", "off", "-n", "0", "-p", "Count to 7.")
        self.assertEqual((got["tokens"], got["text"], got["finish_reason"]), (0, "", "length"))
        got = self.json("run", "--json", "--temp", "0", "--think", "off", "-n", "30", "--ignore-eos", "-p", "Hello!")
        self.assertEqual((got["tokens"], got["finish_reason"]), (30, "length"))

    def test_full_context(self):
        got = self.json("run", "--json", "--temp", "0", "--think", "off", "--ctx", "12", "--ignore-eos", "-p", "Hello!")
        self.assertEqual(got["prompt_tokens"], 6)
        self.assertEqual((got["tokens"], got["finish_reason"]), (7, "length"))  # the last one is not run any more
        self.refused(2, "context holds 4 (see --ctx)", "run", "--ctx", "4", "-p", "Hello!")

    def test_thinking_is_not_content(self):
        got = self.json("run", "--json", "--temp", "0", "-n", "40", "-p", "What is 3 plus 4?")
        self.assertNotIn("think>", got["text"])
        self.assertIn("reasoning", got)
        raw = self.ok("run", "--raw", "--temp", "0", "-n", "40", "-p", EXPECTED[4]["prompt"][: -len("</think>")]).decode()
        self.assertIn("think>", raw)

    def test_a_seed_repeats(self):
        args = ["run", "--json", "--think", "off", "-n", "20", "--ignore-eos", "--temp", "1.5", "-p", "Tell me a story."]
        one, two, three = (self.json(*args, "--seed", s)["token_ids"] for s in ("5", "5", "6"))
        self.assertEqual(one, two)
        self.assertNotEqual(one, three)

    def test_markers_in_a_users_text_are_text(self):
        got = self.json("run", "--json", "--temp", "0", "--think", "off", "-n", "1", "-p", "<\uff5cAssistant\uff5c>")
        self.assertGreater(got["prompt_tokens"], 6)

    def test_ctrl_c(self):
        p = subprocess.Popen([PROGRAM, "run", "--raw", "--ignore-eos", "-p", "Once upon a time"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=self.env)
        p.stdout.read(1)
        out, err = self.interrupt(p, 0.05)
        if p.returncode == 0:
            self.skipTest("the answer was complete before the signal came")
        self.assertEqual(p.returncode, 130, err)
        self.assertIn(b"interrupted; context", err)

    def test_ctrl_c_in_a_prompt_counts_what_was_run(self):
        args = ["run", "--raw", "-f", HELDOUT, "-n", "1", "--arith", "exact", "--batch", "4", "--isa", "scalar"]
        text = self.read(HELDOUT)[:12000]
        args[3] = self.write("text", text)
        p = subprocess.Popen([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        out, err = self.interrupt(p, 0.5)
        self.assertEqual(p.returncode, 130, err)
        found = re.search(rb"prompt (\d+) tokens \((\d+) run\).*context (\d+) of", err)
        self.assertTrue(found, err)
        prompt, run, context = map(int, found.groups())
        self.assertEqual((run, run < prompt), (context, True))

    def test_the_barrier_has_a_line(self):
        got = self.json("bench", "kernels", "barrier", "--json")
        self.assertEqual((got["kernels"], got["failed"]), ([], 0))
        self.assertGreaterEqual(got["barrier"]["workers"], 1)
        self.assertGreater(got["barrier"]["ns"], 0)
        self.assertRegex(self.ok("bench", "kernels", "barrier"), rb"barrier: \d+ workers in \d+ L3 groups meet in \d+ ns(, in \d+ ns beside a busy thread [^\n]*)?\n")
        if got["barrier"]["busy_neighbour_ns"] is not None:
            self.assertGreater(got["barrier"]["busy_neighbour_ns"], 0)

    def test_ctrl_c_in_kernels_and_tokens(self):
        text = self.write("long", b"once upon a time " * 4000000)
        for args in (["bench", "kernels"], ["tokenize", "-f", text], ["ppl", "-f", text]):
            with self.subTest(args[0]):
                p = subprocess.Popen([PROGRAM, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.env)
                self.interrupt(p, 1)
                self.assertEqual(p.returncode, 130)

    def test_a_prompt_that_cannot_fit_is_refused(self):
        text = self.write("long", b"once upon a time " * 4000000)
        self.refused(2, "the context holds 4096 (the most this model allows)", "run", "-f", text)

    def test_ctrl_c_in_long_measurements_leaves_no_file(self):
        for args in (["ppl", "-f", HELDOUT, "--kl-save", self.path("kept"), "--arith", "exact"], ["bench", "-p", "0", "-n", "4000", "-r", "1000"],
                     ["synth", self.path("big"), "--preset", "truedims"]):
            with self.subTest(args[0]):
                p = subprocess.Popen([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
                out, err = self.interrupt(p, 0.5)
                self.assertEqual((p.returncode, out), (130, b""), err)
                self.assertIn(b"interrupted", err)
        self.assertEqual(os.listdir(self.dir), [])

    def test_closed_and_full_stdout(self):
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as full:
                p = subprocess.run([PROGRAM, "run", "--think", "off", "-p", "Hello!"], stdout=full, stderr=subprocess.PIPE, env=self.env)
            self.assertEqual(p.returncode, 1)
            self.assertIn(b"standard output: No space left", p.stderr)
            with open("/dev/full", "wb") as full:
                for args in (["tokenize", "-p", "x"], ["--version"], ["--help"], ["chat", "--think", "off"]):
                    p = subprocess.run([PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, input=b"Hello!\n", env=self.env)
                    self.assertEqual((p.returncode, b"output: No space left" in p.stderr), (1, True), (args, p.stderr))


class Chat(Cli):
    def test_script(self):
        row = EXPECTED[14]
        script = f"{row['user']}\n/stats\n{EXPECTED[12]['user']}\n/undo\n/reset\n{row['user']}\n/quit\nnot read\n"
        code, out, err = self.call("chat", "--temp", "0", "--think", "off", stdin=script.encode())
        self.assertEqual(code, 0, err)
        lines = out.decode().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual((lines[0], lines[2]), (row["output"], row["output"]))
        self.assertIn("tok/s", err)
        self.assertIn("modchip: the last question and its answer are taken back\n", err)
        self.assertIn("modchip: the conversation is forgotten\n", err)

    def test_commands_are_confirmed(self):
        script = b"/undo\n/system Be brief.\n/reset\n/system\n"
        err = self.call("chat", stdin=script)[2].splitlines()
        for line, says in zip(err, ("nothing to take back", "with this system text", "the system text stays", "without a system text")):
            self.assertIn(says, line)
        self.assertEqual(len(err), 4)
        self.assertEqual(self.call("chat", "--quiet", stdin=script)[2], "")

    def test_second_turn_equals_one_rendered_prompt(self):
        one, two = EXPECTED[14], EXPECTED[12]
        out = self.ok("chat", "--temp", "0", "--think", "off", stdin=f"{one['user']}\n{two['user']}\n".encode()).decode().splitlines()
        prompt = one["prompt"] + one["output"] + "<\uff5cend\u2581of\u2581sentence\uff5c>" + two["prompt"][len("<\uff5cbegin\u2581of\u2581sentence\uff5c>"):]
        self.assertEqual(out[1], self.ok("run", "--raw", "--temp", "0", "-p", prompt).decode())

    def test_lossy_settings_cost_what_they_should(self):
        """12 windows of held-out books, compared with the lossless run; reference figures: exact arithmetic, all tokens."""
        ppl = ["ppl", "-f", HELDOUT, "--chunks", "12"]
        plain = self.json(*ppl, "--kl-save", self.path("kept"))
        spelled = self.json(*ppl, "--kl", self.path("kept"), "--moe-top-k", "6", "--moe-rescale", "l1", "--swiglu-exps", "128")
        self.assertEqual((spelled["ppl"], spelled["kl_mean"], spelled["kl_p99"]), (plain["ppl"], 0, 0))
        kl = {}
        for name, want, args in (("top5", 0.00528, "--moe-top-k 5"), ("top5 l1", 0.00638, "--moe-top-k 5 --moe-rescale l1"),
                                 ("top4", 0.01316, "--moe-top-k 4"), ("top4 none", 0.01377, "--moe-top-k 4 --moe-rescale none"),
                                 ("top4 l1", 0.01780, "--moe-top-k 4 --moe-rescale l1"),
                                 ("top4 rho", 0.01383, "--moe-top-k 4 --moe-rescale rho=0.1"),
                                 ("6/4/6", 0.00721, "--moe-inner-k 4 --moe-band 3:4"),
                                 ("5/4/5", 0.00967, "--moe-top-k 5 --moe-inner-k 4 --moe-band 3:4"),
                                 ("adaptive", 0.00038, "--moe-min-weight 0.11"),
                                 ("rows 96", 0.00043, "--swiglu-exps 96 --swiglu-shexp 96"),
                                 ("rows 80", 0.00112, "--swiglu-exps 80 --swiglu-shexp 80"),
                                 ("rows 64", 0.00202, "--swiglu-exps 64 --swiglu-shexp 64"),
                                 ("5,80,80", 0.00633, "--moe-top-k 5 --swiglu-exps 80 --swiglu-shexp 80")):
            code, out, err = self.call(*ppl, "--kl", self.path("kept"), *args.split())
            self.assertEqual(code, 0, err)
            self.assertIn("modchip: lossy settings: top-k", err)
            got = json.loads(out)
            kl[name] = got["kl_mean"]
            self.assertLess(abs(kl[name] - want), 0.0004 + 0.05 * want, name)
            self.assertLess(got["kl_mean"], got["kl_p99"])
            self.assertGreater(got["cos_mean"], 0.98)
            self.assertLess(abs(got["delta_ppl"]), 0.03)
        self.assertLess(kl["top5"], kl["top5 l1"])
        self.assertLess(kl["top4"], kl["top4 none"])
        self.assertLess(kl["top4 none"], kl["top4 l1"])
        quiet = self.call(*ppl[:3], "--chunks", "1", "--moe-top-k", "5", "--quiet")
        self.assertNotIn("lossy", quiet[2])

    def test_lossy_answers(self):
        """Tool calls: exact at lossless settings that are spelled out, and as it happens at two lossy ones (dials of the reference)."""
        for i in (26, 31):
            row = EXPECTED[i]
            for args in ("--moe-top-k 6 --swiglu-exps 0", "--moe-top-k 5", "--swiglu-exps 80 --swiglu-shexp 80"):
                got = self.ok("run", "--raw", "--temp", "0", "--quiet", "-f", self.write("prompt", row["prompt"]), *args.split())
                self.assertEqual(got.decode(), row["output"], args)

    def test_dials_puts_the_profiles_side_by_side(self):
        args = ["dials", "-f", HELDOUT, "--chunks", "2", "-n", "8", "-r", "1"]
        got = self.json(*args, "--json", "--moe-top-k", "1", "--layout", "file")
        rows = {r["profile"]: r for r in got["profiles"]}
        self.assertEqual((got["windows"], got["tokens"]), (2, 510))
        self.assertEqual(list(rows)[0], "lossless")
        self.assertIn("hybrid646", rows)
        plain = rows["lossless"]
        self.assertEqual((plain["kl_mean"], plain["top1_match"], plain["experts_per_layer"]), (0, 1, 6))
        self.assertEqual(rows["top4"]["experts_per_layer"], 5)  # two of the four layers are hash layers
        self.assertGreater(rows["options"]["kl_mean"], rows["top4"]["kl_mean"])
        for name, r in rows.items():
            self.assertGreater(r["decode_tok_s"], 0)
            if name != "lossless":
                self.assertGreater(r["kl_mean"], 0)
                self.assertLess(r["bytes_per_token"], plain["bytes_per_token"])
        # the same figures as ppl gives
        self.ok("ppl", "-f", HELDOUT, "--chunks", "2", "--kl-save", self.path("kept"))
        ppl = self.json("ppl", "-f", HELDOUT, "--chunks", "2", "--kl", self.path("kept"), "--moe-top-k", "4")
        self.assertEqual((ppl["kl_mean"], ppl["kl_p99"], ppl["delta_ppl"]), tuple(rows["top4"][k] for k in ("kl_mean", "kl_p99", "delta_ppl")))
        table = self.ok(*args).decode().splitlines()
        self.assertEqual(sum(line.startswith(("lossless", "top", "rows", "hybrid", "adaptive")) for line in table[2:]) >= len(rows) - 1, True)
        self.refused(2, "dials needs -f", "dials")

    def test_the_file_changes_a_run_while_it_speaks(self):
        cfg = self.path("moe.bin")
        fields = lambda *v: struct.pack("<8i", *v)
        p = subprocess.Popen([PROGRAM, "run", "--raw", "--temp", "0", "-n", "3000", "--ignore-eos", "-p", "Once upon a time", "--moe-cfg", cfg,
                              "--log", "info", "--ctx", "4096"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.env, cwd=self.dir)
        log = []
        try:
            deadline = time.time() + 60
            while not os.path.exists(cfg) and time.time() < deadline:
                time.sleep(0.01)
            self.assertEqual(self.read(cfg), fields(6, 6, 0, 2, 4, 1, 0, 0))
            self.assertEqual(os.stat(cfg).st_mode & 0o777, 0o600)
            for values in ((5, 5, 0, 3, 43, 1, 80, 80), (9, 5, 0, 3, 43, 1, 80, 80)):
                with open(cfg, "r+b") as f:
                    f.write(fields(*values))
                for line in p.stderr:
                    log.append(line.decode())
                    if "source=file" in log[-1] or "field" in log[-1]:
                        break
        finally:
            p.send_signal(signal.SIGINT)
            rest = p.communicate(timeout=60)[1].decode()
        text = "".join(log) + rest
        self.assertIn("source=file lossy=1: top-k 5, 5 in layers 3:4, rescale l2, rows 80/80 of 128, decoding only", text)
        self.assertIn("field 0, moe_top_k: must be 1..6, got 9; the settings stay", text)
        self.assertFalse(os.path.exists(cfg))

    def test_a_given_file_is_in_force_from_the_start_and_a_bad_one_is_not(self):
        cfg = self.write("moe.bin", struct.pack("<8i", 1, 1, 0, 2, 4, 0, 1, 1))
        ask = ("run", "--raw", "--temp", "0", "-n", "30", "-p", "Once upon a time", "--moe-cfg", cfg)
        plain = self.ok(*ask[:-2])
        self.assertNotEqual(self.ok(*ask), plain)
        os.chmod(cfg, 0o666)
        code, out, err = self.call(*ask)
        self.assertEqual((code, out), (0, plain))
        self.assertEqual(err.count("may be written by others"), 1)

    def test_lossy_settings_that_are_wrong(self):
        self.refused(2, "--moe-top-k must be 1..6, got 7", "run", "--moe-top-k", "7", "-p", "x")
        self.refused(2, "--moe-band must be 3..4, got 9", "run", "--moe-band", "3:9", "-p", "x")
        self.refused(2, "FIRST:END", "run", "--moe-band", "4:3", "-p", "x")
        self.refused(2, "FIRST:END", "run", "--moe-band", "3", "-p", "x", "-m", "no-such-model")
        self.refused(2, "none, l1, l2, rho=R", "run", "--moe-rescale", "rho=1", "-p", "x")
        self.refused(2, "--moe-scope decode", "ppl", "-f", HELDOUT, "--moe-scope", "decode")

    def test_mistakes(self):
        code, out, err = self.call("chat", stdin=b"/nonsense\n")
        self.assertEqual((code, out), (2, b""))
        self.assertIn("/help", err)
        self.assertEqual(self.call("chat", stdin=b"/think maybe\n")[0], 2)
        self.assertEqual(self.call("chat", stdin=b"")[0], 0)


    def test_typed_text_of_any_script(self):
        """At a terminal and in the C locale, what is typed is what the model reads."""
        text = "\u65e5\u672c\u8a9e \u00fc\uff5c"
        near, far = pty.openpty()
        p = subprocess.Popen([PROGRAM, "chat", "--think", "off", "-n", "1"], stdin=far, stdout=far, stderr=subprocess.PIPE,
                             env={**self.env, "LC_ALL": "C", "TERM": "dumb"})
        os.close(far)
        for line in (text, "/stats", "/quit"):
            seen = b""
            while b"> " not in seen:
                seen += os.read(near, 1000)
            os.write(near, line.encode() + b"\n")
        err = p.communicate(timeout=60)[1].decode()
        os.close(near)
        want = self.json("run", "--json", "--think", "off", "-n", "1", "-p", text)["prompt_tokens"]
        self.assertEqual(p.returncode, 0, err)
        self.assertIn(f"prompt {want} tokens,", err)


class Numbers(Cli):
    def test_perplexity_of_the_heldout_text(self):
        got = self.json("ppl", "-f", HELDOUT, "--chunks", "12", "--kl-save", self.path("kept"))
        self.assertEqual((got["tokens"], got["windows"]), (12 * 255, 12))
        self.assertLess(abs(got["ppl"] / 56.8 - 1), 0.005)
        self.assertAlmostEqual(math.exp(got["nll"]), got["ppl"], 6)
        self.assertEqual(os.path.getsize(self.path("kept")), 40 + 12 * 255 * 2048 * 4)

        same = self.json("ppl", "-f", HELDOUT, "--chunks", "12", "--kl", self.path("kept"), "-t", "1", "--batch", "100")
        self.assertEqual((same["kl_mean"], same["kl_p99"], same["top1_match"], same["delta_ppl"]), (0, 0, 1, 0))
        exact = self.json("ppl", "-f", HELDOUT, "--chunks", "12", "--kl", self.path("kept"), "--kv", "q8")
        for key in ("kl_mean", "kl_p99", "kl_top10_mean", "kl_top10_p99"):
            self.assertTrue(0 < exact[key] < 0.2, (key, exact))
        self.assertTrue(0.9 < exact["top1_match"] <= exact["top3_match"] <= 1)
        self.assertTrue(0.99 < exact["cos_mean"] <= 1)

        self.refused(2, "--chunks", "ppl", "-f", HELDOUT, "--chunks", "11", "--kl", self.path("kept"))
        other = self.write("other.txt", self.read(HELDOUT)[100:])
        self.refused(2, "another text", "ppl", "-f", other, "--chunks", "12", "--kl", self.path("kept"))

    def test_windows(self):
        got = self.json("ppl", "-f", HELDOUT, "--chunk", "64", "--stride", "32", "--chunks", "5")
        self.assertEqual((got["tokens"], got["windows"]), (5 * 31, 5))
        self.refused(2, "one window needs 512", "ppl", "-f", self.write("short.txt", "Too short."))

    def test_logits(self):
        ids = EXPECTED[0]["prompt_tokens"] + EXPECTED[0]["output_tokens"][:-1]
        text = ",".join(map(str, ids))
        got = self.json("logits", "--tokens", text, "-o", self.path("all"))
        n, vocab = len(ids), got["vocab"]
        self.assertEqual(got["positions"], list(range(n)))
        start = len(EXPECTED[0]["prompt_tokens"]) - 1
        self.assertEqual(got["argmax"][start:], EXPECTED[0]["output_tokens"])
        data = self.read("all")
        self.assertEqual(len(data), n * vocab * 4)
        row = struct.unpack(f"<{vocab}f", data[start * vocab * 4:(start + 1) * vocab * 4])
        self.assertEqual(row.index(max(row)), EXPECTED[0]["output_tokens"][0])

        some = self.json("logits", "--tokens", "@" + self.write("ids", text.replace(",", "\n")), "--positions", f"0,{start}", "-o", self.path("some"))
        self.assertEqual(some["positions"], [0, start])
        self.assertEqual(self.read("some"), data[:vocab * 4] + data[start * vocab * 4:(start + 1) * vocab * 4])

    def test_logits_mistakes_leave_no_file(self):
        out = self.path("x")
        self.refused(2, "--tokens", "logits", "-o", out)
        self.refused(2, "-o FILE", "logits", "--tokens", "1")
        self.refused(2, "empty", "logits", "--tokens", "@" + self.write("none", ""), "-o", out)
        self.refused(2, "ascending", "logits", "--tokens", "1,2,3", "--positions", "2,1", "-o", out)
        self.refused(2, "entry 1", "logits", "--tokens", "1,2,3", "--positions", "3", "-o", out)
        self.refused(2, "2048", "logits", "--tokens", "1,2048", "-o", out)
        self.assertFalse(os.path.exists(out))
        self.refused(1, "no-such-folder", "logits", "--tokens", "1", "-o", self.path("no-such-folder/x"))
        self.refused(2, "-o -: standard output", "logits", "--tokens", "1", "-o", "-")
        self.refused(2, "must follow the @", "logits", "--tokens", "@", "-o", out)
        self.assertEqual(os.listdir(self.dir), ["none"])

    def test_inputs_are_not_outputs(self):
        model, link = self.path("model"), self.path("link")
        shutil.copy(MODEL, model)
        os.symlink(model, link)
        self.refused(2, "read in this run", "logits", "-m", model, "--tokens", "0,1", "-o", model)
        self.refused(2, "read in this run", "logits", "-m", link, "--tokens", "0,1", "-o", model)
        text = self.write("text", self.read(HELDOUT)[:4000])
        for file in (model, text):
            self.refused(2, "--kl-save", "ppl", "-m", model, "-f", text, "--chunk", "64", "--kl-save", file)
        kept, args = self.path("kept"), ("ppl", "-m", model, "-f", text, "--chunk", "64")
        self.ok(*args, "--kl-save", kept)
        before = self.read(kept)
        self.refused(2, "--kl-save", *args, "--kl", kept, "--kl-save", kept)
        del self.env["MODCHIP_MODEL"]
        os.mkdir(self.path("models"))
        shutil.copy(PROGRAM, self.path("modchip"))
        os.rename(model, self.path("models/tiny-dsv4.gguf"))
        p = subprocess.run([self.path("modchip"), "logits", "--tokens", "1", "-o", self.path("models/tiny-dsv4.gguf")], capture_output=True, env=self.env)
        self.assertEqual((p.returncode, b"the model itself" in p.stderr), (2, True), p.stderr)
        self.assertEqual((self.read("models/tiny-dsv4.gguf"), self.read(kept)), (self.read(MODEL), before))

    def test_a_failed_run_keeps_the_older_file(self):
        broken = bytearray(self.read(MODEL))
        tensor = next(t for t in self.json("inspect", "--json", "--tensors")["tensor_list"] if t["name"] == "blk.3.ffn_down_exps.weight")
        broken[tensor["offset"]:tensor["offset"] + tensor["bytes"]] = b"\xff" * tensor["bytes"]
        model, old = self.write("nan.gguf", bytes(broken)), self.write("old", "old")
        self.refused(1, "hold NaN", "logits", "-m", model, "--tokens", "0,5", "-o", old)
        self.assertEqual(self.read(old), b"old")
        for sig in (signal.SIGTERM, signal.SIGKILL):
            p = subprocess.Popen([PROGRAM, "synth", old, "--preset", "truedims"], stderr=subprocess.DEVNULL, env=self.env)
            while not os.path.exists(old + ".part") and p.poll() is None:
                time.sleep(0.01)
            p.send_signal(sig)
            self.assertEqual(p.wait(60), -sig if sig == signal.SIGKILL else 130)
            self.assertEqual(self.read(old), b"old")
            if sig == signal.SIGKILL:
                os.remove(old + ".part")
        self.assertEqual(sorted(os.listdir(self.dir)), ["nan.gguf", "old"])

    def test_profile(self):
        got = self.json("profile", "--json", "-p", "40", "-n", "6")
        whole = self.json("inspect", "--json")["bytes_per_token"]
        for phase, tokens, walks in (("prefill", 40, 1), ("decode", 6, 6)):
            rows = {r["op"]: r for r in got[phase]["operators"]}
            self.assertEqual(got[phase]["tokens"], tokens)
            self.assertEqual(rows["embed"]["calls"], walks)
            self.assertEqual(rows["hyper_in"]["calls"], 2 * rows["attend"]["calls"])
            for key in ("bytes", "ms"):  # operators and layers are two ways to cut the same
                self.assertAlmostEqual(sum(r[key] for r in rows.values()) / sum(r[key] for r in got[phase]["layers"]), 1, 6)
            self.assertAlmostEqual(sum(r["share"] for r in rows.values()), 1, 6)
            self.assertTrue(all(0 <= r["wait_share"] <= 1 for r in rows.values()), rows)
        read = sum(r["bytes"] for r in got["decode"]["operators"]) / 6
        # of what inspect counts all but norms, biases and the indexer, which this depth does not need
        self.assertTrue(0.85 < read / whole < 1, (read, whole))
        self.refused(2, "5000 tokens are wanted", "profile", "-p", "5000")

    def test_bench(self):
        got = self.json("bench", "--json", "-p", "40", "-n", "6", "-r", "2", "--depth", "20")
        for key in ("prefill_tok_s", "decode_tok_s"):
            self.assertTrue(0 < got[key]["min"] <= got[key]["median"] <= got[key]["max"])
        for key in ("bytes_per_token", "read_gb_s", "mem_bw_gb_s", "mem_bw_buffer_bytes", "bus_share", "load_s", "load_gb_s", "rss_peak_bytes"):
            self.assertGreater(got[key], 0, key)
        self.assertAlmostEqual(got["read_gb_s"] / (got["decode_tok_s"]["median"] * got["bytes_per_token"] * 1e-9), 1, 6)
        self.assertAlmostEqual(got["bus_share"] / (got["read_gb_s"] / got["mem_bw_gb_s"]), 1, 6)
        facts = self.json("inspect", "--json")
        # inspect counts the indexer, which this depth does not need; bench counts cache rows
        self.assertLess(abs(got["bytes_per_token"] / facts["bytes_per_token"] - 1), 0.1)

        only = self.json("bench", "--json", "--load")
        self.assertEqual(sorted(only), ["disk_gb_s", "disk_share", "first_touch_s", "huge_share", "intake_gb_s", "io", "io_direct", "io_from_cache", "isa", "load_gb_s",
                                        "load_s", "packed_bytes", "packed_file_bytes", "pages_1g_bytes", "pages_2m_bytes", "pages_normal_bytes", "pages_thp_bytes",
                                        "pinned", "rss_peak_bytes", "tensor_bytes", "threads"])
        self.assertEqual(only["tensor_bytes"], facts["tensor_bytes"])
        says = "weights          {:.1f} MB in the file, of them {:.1f} MB packed into {:.1f} MB of memory\n"
        keys = ("tensor_bytes", "packed_file_bytes", "packed_bytes")
        self.assertIn(says.format(*(only[key] * 1e-6 for key in keys)), self.ok("bench", "--load").decode())
        self.refused(2, "no packed form", "bench", "--load", "--layout", "packed", "--isa", "scalar")
        self.assertIn(b"decode", self.ok("bench", "-p", "8", "-n", "2", "-r", "1"))
        self.refused(2, "at most 4096", "bench", "--depth", "4000", "-p", "200")

    def test_bench_kernels(self):
        self.refused(2, "rms_nrom", "bench", "kernels", "rms_nrom")
        got = self.json("bench", "kernels", "rms_norm", "--json")
        self.assertGreater(len(got["kernels"]), 0)
        for row in got["kernels"]:
            self.assertTrue(row["ok"], row)
            self.assertEqual({"kernel", "isa", "ok", "weights_per_cycle", "gb_s", "speedup"} - set(row), set())


class Text(Cli):
    def test_round_trip(self):
        text = "Hello, world! \u00e9\u4e2d\u6587 \U0001f44d\n\ttabs  and <think>markers</think>\r\n" * 3
        ids = self.json("tokenize", "-p", text)
        self.assertEqual(self.ok("detokenize", "--tokens", ",".join(map(str, ids))), text.encode())
        self.assertEqual(self.ok("detokenize", stdin=json.dumps(ids).encode()), text.encode())
        self.assertEqual(self.json("tokenize", stdin=text.encode()), ids)
        self.assertEqual(self.json("detokenize", "--json", "-p", json.dumps(ids)), {"text": text, "tokens": len(ids)})

    def test_a_vocabulary_without_tensors_is_enough(self):
        gguf = os.path.join(DATA, "tokenizer", "dsv4-tokenizer.gguf")
        self.assertEqual(self.json("tokenize", "-m", gguf, "-p", "<think>"), [128821])
        self.assertEqual(self.ok("detokenize", "-m", gguf, "-p", "128821"), b"<think>")

    def test_expected_prompts(self):
        for row in EXPECTED[::7]:
            self.assertEqual(self.json("tokenize", "-p", row["prompt"]), row["prompt_tokens"])

    def test_mistakes(self):
        self.refused(2, "entry 2", "detokenize", "-p", "1,2048")
        self.refused(2, "both", "tokenize", "-p", "a", "-f", "b")


class Files(Cli):
    def test_inspect(self):
        got = self.json("inspect", "--json", "--tensors", "--check")
        self.assertEqual(got["metadata"]["general.architecture"], "deepseek4")
        self.assertEqual(got["metadata"]["tokenizer.ggml.tokens"]["count"], 2048)
        self.assertEqual(len(got["tensor_list"]), got["tensors"])
        self.assertEqual(sum(t["bytes"] for t in got["tensor_list"]), got["tensor_bytes"])
        self.assertEqual(sum(t["bytes"] for t in got["types"].values()), got["tensor_bytes"])
        self.assertTrue(got["checked"])
        self.assertIn(b"iq2_xxs", self.ok("inspect", MODEL))

    def test_check_finds_a_broken_scale(self):
        got = self.json("inspect", "--json", "--tensors")
        tensor = next(t for t in got["tensor_list"] if t["type"] == "q8_0")
        data = bytearray(self.read(MODEL))
        rows = 3 * tensor["bytes"] // math.prod(tensor["shape"][1:])
        data[tensor["offset"] + rows:tensor["offset"] + rows + 2] = b"\x00\x7e"  # NaN
        path = self.write("broken.gguf", bytes(data))
        self.refused(1, f"tensor {tensor['name']}: a weight at or near row 3 ", "inspect", path, "--check")

    def test_a_weight_that_is_no_number_ends_the_run(self):
        got = self.json("inspect", "--json", "--tensors")
        for name, says in (("blk.2.attn_norm.weight", "tensor blk.2.attn_norm.weight holds NaN"), ("blk.3.exp_probs_b.bias", "tensor blk.3.exp_probs_b.bias holds NaN"),
                           ("blk.3.ffn_down_exps.weight", "the logits at position 0 hold NaN")):
            tensor = next(t for t in got["tensor_list"] if t["name"] == name)
            data = bytearray(self.read(MODEL))
            data[tensor["offset"]:tensor["offset"] + tensor["bytes"]] = b"\xff" * tensor["bytes"]
            path = self.write("nan.gguf", bytes(data))
            for isa in ("scalar", "auto"):
                self.refused(1, says.split(" at ")[0], "run", "-m", path, "--isa", isa, "-p", "Hello!")
            self.refused(1, says, "logits", "-m", path, "--tokens", "0,5", "-o", self.path("l"))

    def test_cut_and_foreign_files(self):
        data = self.read(MODEL)
        for name, content in (("cut", data[:-1000]), ("head", data[:5000]), ("text", b"hello"), ("empty", b"")):
            path = self.write(name, content)
            self.refused(1, name, "run", "-m", path, "-p", "x")
            self.refused(1, name, "inspect", path)
        self.assertNotEqual(self.call("run", "-m", self.dir, "-p", "x")[0], 0)
        self.refused(1, "missing.gguf", "run", "-m", self.path("missing.gguf"), "-p", "x")

    def test_synth_models_run(self):
        for preset in ("nano", "nano-quant"):
            path = self.path(preset)
            self.ok("synth", path, "--preset", preset)
            self.ok("inspect", path, "--check")
            got = self.json("run", "-m", path, "--json", "--temp", "0", "-n", "4", "--ignore-eos", "-p", "the")
            self.assertEqual(got["tokens"], 4)
        types = "attn=q4_1,shexp=nvfp4,embd=bf16,output=iq4_xs,comp=q5_0,indexer=q8_0,hc=bf16"
        self.ok("synth", self.path("mix"), "--preset", "nano-quant", "--type", types, "--experts", "0:mxfp4/iq3_s,1:tq1_0,2-3:iq2_s/q3_K")
        self.ok("logits", "-m", self.path("mix"), "--tokens", "5,6,7", "-o", self.path("l"))

    def test_synth_on_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        code, out, err = self.call("synth", "/dev/full")
        self.assertEqual((code, len(err.splitlines())), (1, 1), err)

    def test_synth_under_a_file_size_limit(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        p = subprocess.run([PROGRAM, "synth", self.path("big")], capture_output=True, env=self.env, preexec_fn=limit)
        self.assertEqual((p.returncode, p.stdout, len(p.stderr.splitlines())), (1, b"", 1), p.stderr)
        self.assertEqual(os.listdir(self.dir), [])


class Machine(Cli):
    def setUp(self):
        super().setUp()
        del self.env["MODCHIP_THREADS"]

    def golden(self, name):
        return os.path.join(DATA, "topology", name + ".xml")

    def test_topo_of_other_machines(self):
        got = self.json("topo", "--json", "--topology", self.golden("ryzen9-9955hx"))
        self.assertEqual((got["cpus"], got["cores"], got["l3_groups"], got["cpus_per_core"], got["pinned"]), (32, 16, 2, 2, True))
        self.assertEqual(got["threads"], [{"thread": i, "cpu": i, "core": i, "l3": i // 8, "node": 0} for i in range(16)])
        got = self.json("topo", "--json", "--topology", self.golden("vm-16-sockets-of-1"))
        self.assertEqual((got["packages"], got["l3_groups"], len(got["threads"]), got["threads"][3]["l3"]), (16, 0, 16, None))
        got = self.json("topo", "--json", "--topology", self.golden("epyc-9654-2s-nps4"))
        self.assertEqual([(t["core"], t["l3"], t["node"]) for t in got["threads"]], [(i, i // 8, i // 24) for i in range(192)])
        got = self.json("topo", "--json", "--topology", self.golden("intel-13900k-hybrid"))
        self.assertEqual([t["cpu"] for t in got["threads"]], list(range(0, 16, 2)))
        self.assertEqual([k["cores"] for k in got["core_kinds"]], [8, 16])
        got = self.json("topo", "--json", "--topology", "Package:2 L3:2 Core:4 PU:2", "-t", "10")
        self.assertEqual((len(got["threads"]), [g["l3"] for g in got["groups"]]), (10, [0, 1, 2, 3]))
        got = self.json("topo", "--json", "--topology", self.golden("ryzen9-9955hx"), "--pin", "off", "-t", "3")
        self.assertEqual(got["threads"], [{"thread": i, "cpu": None, "core": None, "l3": None, "node": None} for i in range(3)])
        got = self.json("topo", "--json", "--topology", self.golden("ryzen9-9955hx-cpuset-siblings"), "--pin", "24,0")
        self.assertEqual([(t["cpu"], t["core"], t["l3"]) for t in got["threads"]], [(24, 2, 1), (0, 0, 0)])
        self.refused(2, "'no such machine'", "topo", "--topology", "no such machine")
        self.refused(2, "CPU 99", "topo", "--pin", "99", "--topology", self.golden("ryzen9-9955hx"))

    def test_topo_of_broken_descriptions(self):
        xml = self.read(os.path.join(DATA, "topology", "ryzen9-9955hx-smt-off.xml")).decode()
        endless = self.write("endless.xml", re.sub(r'cpuset="0x[0-9a-f]+"', 'cpuset="0xf...f"', xml))
        for description in (endless, "/dev/zero", self.dir, "Package:2 L3:"):
            self.refused(2, "description", "topo", "--topology", description)

    def test_topo_here(self):
        allowed = sorted(os.sched_getaffinity(0))
        got = self.json("topo", "--json")
        self.assertEqual(got["cpus"], len(allowed))
        self.assertLessEqual({t["cpu"] for t in got["threads"]}, set(allowed))
        code, out, err = self.call("topo", "--json", OMP_NUM_THREADS="4")
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("OMP_NUM_THREADS", err)
        self.assertEqual(self.call("topo", "--json", "-t", "1", OMP_NUM_THREADS="4")[2], "")
        if len(allowed) < 2:
            self.skipTest("one CPU")
        one = lambda: os.sched_setaffinity(0, {allowed[-1]})
        p = subprocess.run([PROGRAM, "topo", "--json"], capture_output=True, env=self.env, preexec_fn=one)
        self.assertEqual([t["cpu"] for t in json.loads(p.stdout)["threads"]], [allowed[-1]])
        self.assertEqual(len(p.stderr.splitlines()), 1)
        self.assertIn(f"started bound to CPU {allowed[-1]}".encode(), p.stderr)

    def test_topo_pictures(self):
        args = ["topo", "--topology", self.golden("ryzen9-9950x3d")]
        text = self.ok(*args, "--draw").decode()
        self.assertIn("L3 0, 96 MiB", text)
        self.assertEqual((text.count("| core "), text.count("| w")), (16, 16))
        self.assertEqual(self.ok(*args, "--draw", "text").decode(), text)
        svg = self.ok(*args, "--draw", "svg")
        self.assertEqual(len(xml.dom.minidom.parseString(svg).getElementsByTagName("rect")), 1 + 1 + 2 + 16)
        self.assertEqual(self.ok(*args, "--draw=svg", "-o", self.path("m.svg")), self.ok(*args))
        self.assertEqual(self.read("m.svg"), svg)
        self.refused(2, "--draw", *args, "-o", self.path("x"))
        self.refused(2, "standard output", *args, "--draw", "--json")
        self.refused(2, "none of text|svg", *args, "--draw=png")

    def test_doctor(self):
        r = self.json("doctor", "--quick", "--json", "--ctx", "64", MODCHIP_KV="f32")
        found = {f["check"]: f for f in r["findings"]}
        self.assertEqual(set(found), {"cpu", "cores", "governor", "model", "memory", "hugepages", "limits", "io_uring"})
        for f in r["findings"]:
            self.assertIn(f["state"], ("ok", "slower", "blocks"))
            self.assertEqual(f["remedy"] is None, f["state"] == "ok", f)
        self.assertRegex(found["cores"]["found"], r"^\d+ workers?")
        settings = {s["option"]: (s["value"], s["source"]) for s in r["settings"]}
        self.assertEqual(settings["ctx"], ("64", "command line"))
        self.assertEqual(settings["kv"], ("f32", "environment"))
        self.assertEqual(settings["layout"], ("auto", "default"))
        out = self.ok("doctor").decode()
        for line in ("cpu ", "memory speed ", "disk speed ", "settings "):
            self.assertIn("\n" + line, "\n" + out)

    def test_doctor_names_what_blocks(self):
        code, out, err = self.call("doctor", "--quick", "-m", self.write("no.gguf", "nothing"))
        self.assertEqual(code, 1)
        self.assertRegex(out.decode(), r"\nmodel +blocks +[^\n]*no.gguf[^\n]*\n +-> ")
        self.assertRegex(err, r"modchip: this cannot run: model: [^\n]*no.gguf[^\n]*\n$")
        code, out, _ = self.call("doctor", "--quick", "--ctx", "2000000000")
        self.assertEqual(code, 1)
        self.assertIn(b"--ctx 2000000000", out)

    def test_doctor_sees_a_narrow_start(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("needs two CPUs")
        p = subprocess.run(["taskset", "-c", str(cpus[0]), PROGRAM, "doctor", "--quick"], capture_output=True, text=True,
                           env={**self.env, "MODCHIP_THREADS": "1"}, timeout=60)
        self.assertEqual(p.returncode, 0)
        self.assertRegex(p.stdout, r"cores +slower ")
        self.assertIn("without taskset", p.stdout)

    def test_plan(self):
        """A plan of the bundled model agrees with what bench then finds, and nothing is loaded."""
        plan = self.json("plan", "--json", "-t", "2", "--layout", "packed")
        bench = self.json("bench", "--json", "-t", "2", "--layout", "packed", "-p", "4", "-n", "4", "-r", "1")
        self.assertEqual(sum(w["packed_bytes"] for w in plan["weights"]), bench["packed_bytes"])
        self.assertEqual(sum(w["file_bytes"] for w in plan["weights"]), bench["tensor_bytes"])
        self.assertTrue(plan["fits"])
        self.assertEqual((plan["experts_cached_share"], plan["disk_bytes_per_token"]), (1, 0))
        file = self.json("plan", "--json", "-t", "2", "--layout", "file", "--ctx", "100")
        self.assertEqual(sum(w["packed_bytes"] for w in file["weights"]), 0)
        self.assertEqual(sum(w["bytes_per_token"] for w in file["weights"]), file["bytes_per_token"])
        inspect = self.json("inspect", "--json")
        self.assertLess(abs(file["bytes_per_token"] / inspect["bytes_per_token"] - 1), 0.1)
        self.assertLess(file["kv_bytes"], plan["kv_bytes"])
        if file["mem_bw_gb_s"]:
            self.assertAlmostEqual(file["decode_tok_s"], file["mem_bw_gb_s"] * 1e9 / file["bytes_per_token"], delta=1)
        some = self.json("plan", "--json", "-t", "2", "--layout", "file", "--ctx", "100", "--expert-cache", "2M")
        self.assertTrue(some["streams"])
        self.assertLessEqual(some["expert_cache_bytes"], 2 << 20)
        self.assertTrue(0 < some["experts_cached_share"] < 1)
        self.assertTrue(0 < some["disk_bytes_per_token"] < some["bytes_per_token"])
        self.assertGreater(some["decode_tok_s"], 0)
        layers = some["layers"]
        self.assertEqual(sum(l["experts_bytes"] for l in layers), some["weights"][1]["file_bytes"])
        self.assertEqual(sum(l["dense_bytes"] for l in layers), some["weights"][0]["file_bytes"])
        self.assertIn(b"streams ", self.ok("plan", "--expert-cache", "2M"))
        self.refused(1, "--memory: 1 MiB are too few", "plan", "--memory", "1M")
        self.refused(2, "not a size", "plan", "--memory", "lots")
        self.refused(2, "0 bytes", "plan", "--memory", "0")
        self.refused(2, "--ctx 5000", "plan", "--ctx", "5000")
        self.assertEqual(self.json("plan", "--json", "--config", self.write("conf", "memory = 1G\n"))["memory_bytes"], 1 << 30)
        self.ok("tokenize", "-p", "x", "--config", self.path("conf"), MODCHIP_MEMORY="1G")  # not its option


class Streaming(Cli):
    """Routed experts that do not fit are read while the model runs; the answers are the same."""

    def test_answers_are_the_same(self):
        run = ["run", "--json", "-p", "Count to 7.", "--temp", "0", "-n", "24", "--ctx", "300"]
        whole = self.json(*run)
        for more in (["--expert-cache", "2M"], ["--expert-cache", "1900K", "-t", "1", "--io", "pread"], ["--expert-cache", "2M", "--batch", "3"]):
            got = self.json(*run, *more)
            self.assertEqual(got["text"], whole["text"], more)
            self.assertGreater(got["streaming"]["bytes_read"], 0)
            self.assertGreater(got["streaming"]["misses"], 0)
        self.assertNotIn("streaming", whole)
        self.assertNotIn("streaming", self.json(*run, "--memory", "2G"))

    def test_bench_shows_the_disk(self):
        got = self.json("bench", "--json", "-p", "16", "-n", "8", "-r", "1", "--expert-cache", "2M")["streaming"]
        self.assertLess(got["expert_cache_bytes"], got["expert_all_bytes"])
        for part in (got["prefill"], got["decode"]):
            self.assertTrue(0 <= part["hit_rate"] <= 1)
            self.assertGreaterEqual(part["stall_s"], 0)

    def test_refusals(self):
        self.refused(1, "--memory: 50 MiB are too few", "run", "-p", "x", "--memory", "50M")
        self.refused(2, "this model needs at least", "run", "-p", "x", "--expert-cache", "1K")
        self.refused(2, "--io mmap", "run", "-p", "x", "--io", "mmap", "--expert-cache", "2M")


class Settings(Cli):
    def test_environment_and_config(self):
        self.write("conf", "# mine\ntemp = 0\nthink = off\npredict = 2\n")
        args = ["run", "--json", "-p", "Count to 7."]
        self.assertEqual(self.json(*args, "--config", self.path("conf"))["tokens"], 2)
        self.assertEqual(self.json(*args, MODCHIP_CONFIG=self.path("conf"), MODCHIP_PREDICT="3")["tokens"], 3)
        self.assertEqual(self.json(*args, "-n", "4", MODCHIP_CONFIG=self.path("conf"), MODCHIP_PREDICT="3")["tokens"], 4)
        os.mkdir(self.path("modchip"))
        self.write("modchip/config", "predict = 5\nthink = off\ntemp = 0\n")
        self.assertEqual(self.json(*args)["tokens"], 5)
        self.write("modchip/config", "predict = 5\nthink = sometimes\n")
        self.refused(2, "config:2: think", *args)

    def test_bundled_model(self):
        """Without -m the model is found beside the program, and a line says so."""
        os.mkdir(self.path("bin"))
        os.mkdir(self.path("models"))
        shutil.copy(PROGRAM, self.path("bin"))
        del self.env["MODCHIP_MODEL"]
        program = os.path.join(self.dir, "bin", os.path.basename(PROGRAM))
        args = [program, "run", "--temp", "0", "--think", "off", "--quiet", "-p", "What colour is snow?"]
        p = subprocess.run(args, capture_output=True, env=self.env)
        self.assertEqual(p.returncode, 2)
        self.assertIn(b"-m FILE", p.stderr)
        shutil.copy(MODEL, self.path("models"))
        p = subprocess.run(args, capture_output=True, env=self.env)
        self.assertEqual((p.returncode, p.stdout), (0, EXPECTED[14]["output"].encode()))
        self.assertIn(b": " + os.path.realpath(self.path("models/tiny-dsv4.gguf")).encode() + b"\n", p.stderr)
        self.assertEqual(len(p.stderr.splitlines()), 1)

    def test_ways_of_loading(self):
        """The same logits whatever way the weights come in, packed or as the file has them, bundled or made."""
        model = self.path("made.gguf")
        self.ok("synth", model, "--preset", "nano-quant", "--quiet")
        for env in ({}, {"MODCHIP_MODEL": model}):
            self.ok("logits", "--tokens", "1,2,3,4,5", "-o", "want", "--io", "mmap", "--layout", "file", **env)
            for layout in ("auto", "file"):
                for io in ("auto", "mmap", "uring", "pread"):
                    code, out, err = self.call("logits", "--tokens", "1,2,3,4,5", "-o", "got", "--io", io, "--layout", layout, "--quiet", **env)
                    if code and io == "uring":  # forbidden in some containers
                        self.assertEqual((code, out), (1, b""), err)
                        self.assertIn("--io uring: ", err)
                        continue
                    self.assertEqual(code, 0, err)
                    self.assertEqual(self.read("want"), self.read("got"), (io, layout))
            exact = ("logits", "--tokens", "1,2,3", "--arith", "exact", "-o")
            self.ok(*exact, "a", "--io", "mmap", **env)
            self.ok(*exact, "b", "--io", "pread", **env)
            self.assertEqual(self.read("a"), self.read("b"))
            for numa in ("auto", "local", "interleave", "mirror"):
                self.ok("logits", "--tokens", "1,2,3,4,5", "-o", "got", "--numa", numa, **env)
                self.assertEqual(self.read("want"), self.read("got"), numa)
        got = self.json("bench", "--load", "--json", "--io", "pread")
        self.assertEqual(got["io"], "pread")
        self.assertGreater(got["load_gb_s"], 0)

    def memory_group(self, limit):
        """A memory control group for one test; returns its folder and what a child calls to enter it."""
        group = f"/sys/fs/cgroup/memory/modchip-e2e-{os.getpid()}"
        try:
            os.mkdir(group)
            self.addCleanup(os.rmdir, group)
            with open(group + "/memory.limit_in_bytes", "w") as f:
                f.write(str(limit))
        except OSError as e:
            self.skipTest(f"no memory control group can be made: {e}")

        def enter():
            with open(group + "/cgroup.procs", "w") as f:
                f.write("0")
        return group, enter

    def capped(self, enter, call, *more):
        """Output of the program in the group."""
        p = subprocess.run([PROGRAM, *call, *more], capture_output=True, env=self.env, cwd=self.dir, timeout=300, preexec_fn=enter)
        self.assertNotEqual(p.returncode, -signal.SIGKILL, "the group's limit was broken")
        self.assertEqual(p.returncode, 0, p.stderr)
        return p.stderr

    def test_loading_in_a_group_smaller_than_the_file(self):
        """A memory control group that does not hold the file: what does not fit stays mapped, and the answer is the same."""
        _, enter = self.memory_group(160 << 20)
        model = self.path("made.gguf")
        self.ok("synth", model, "--preset", "nano-quant", "--set", "ff=4096", "--set", "experts=64", "--layers", "8", "--quiet")
        self.assertGreater(os.path.getsize(model), 200 << 20)
        call = ("logits", "--tokens", "1,2,3", "-m", model, "--ctx", "16", "--batch", "8", "--quiet", "-o")
        self.ok(*call, "free")
        for more in ((), ("--io", "pread"), ("--io", "mmap"), ("--hugepages", "off")):
            self.assertIn(b"stay mapped", self.capped(enter, call, "capped", *more), more)
            self.assertEqual(self.read("free"), self.read("capped"), more)

    def test_loading_when_the_file_cache_is_full(self):
        """Files, clean ones and such as wait to be written, fill the group to its limit: they give way, and all weights find room."""
        limit = 1 << 30
        group, enter = self.memory_group(limit)
        model = self.path("made.gguf")
        self.ok("synth", model, "--preset", "nano-quant", "--set", "ff=4096", "--set", "experts=64", "--layers", "3", "--quiet")
        self.assertGreater(os.path.getsize(model), 70 << 20)
        call = ("logits", "--tokens", "1,2,3", "-m", model, "--ctx", "16", "--batch", "8", "--quiet", "-o")
        self.ok(*call, "free")
        for more in ((), ("--io", "mmap"), ("--io", "pread", "--hugepages", "off")):
            subprocess.run(["dd", "if=/dev/zero", "of=" + self.path("fill"), "bs=1M", f"count={limit >> 20}"], check=True, stderr=subprocess.DEVNULL,
                           preexec_fn=enter)
            with open(group + "/memory.usage_in_bytes") as f:
                self.assertGreater(int(f.read()), limit // 10 * 9, "the cache is not full")
            self.assertNotIn(b"stay mapped", self.capped(enter, call, "capped", *more), more)
            self.assertEqual(self.read("free"), self.read("capped"), more)
            os.remove(self.path("fill"))

    def test_loading_as_another_user_with_little_locked_memory(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
        if os.geteuid() == 0 and not os.access(PROGRAM, os.X_OK):
            self.skipTest("the program cannot be reached by other users")
        shutil.copy(PROGRAM, self.path("modchip"))
        shutil.copy(MODEL, self.path("m.gguf"))
        os.chmod(self.dir, 0o755)
        p = subprocess.run([self.path("modchip"), "run", "-p", "Hello!", "--think", "off", "--temp", "0", "-m", self.path("m.gguf"), "--quiet"],
                           stdin=subprocess.DEVNULL, capture_output=True, env=self.env, timeout=120, preexec_fn=lower)
        self.assertEqual((p.returncode, p.stdout), (0, b"Hello! How can I help you?"), p.stderr)

    def test_hugepages(self):
        """The same logits whatever the weights' memory is made of; a choice that cannot be kept is one line."""
        self.ok("logits", "--tokens", "1,2,3,4,5", "-o", "a", "--hugepages", "auto")
        for huge in ("off", "thp", "2m", "1g"):
            code, out, err = self.call("logits", "--tokens", "1,2,3,4,5", "-o", huge, "--hugepages", huge, "--quiet")
            if code == 0:
                self.assertEqual(self.read("a"), self.read(huge), huge)
            else:
                self.assertNotEqual(huge, "off")
                self.assertEqual((code, out), (1, b""), err)
                self.assertIn(f"--hugepages {huge}: ", err)
        got = self.json("bench", "--load", "--json", "--hugepages", "off")
        self.assertEqual(got["huge_share"], 0)
        self.assertGreaterEqual(got["pages_normal_bytes"], got["packed_bytes"])
        self.refused(2, "is none of", "run", "-p", "x", "--hugepages", "4k")

    def test_mistakes(self):
        self.refused(2, "--help", )
        self.refused(2, "unknown command 'frobnicate'", "frobnicate")
        for name in ("serve", "tune", "repack"):
            self.refused(2, f"{name} is not in this version", name, "--whatever")
        self.refused(2, "unknown option --nonsense", "run", "--nonsense")
        self.refused(2, "unexpected argument 'junk'", "run", "-p", "x", "junk")
        self.refused(2, "--ctx 5000", "run", "--ctx", "5000", "-p", "x")
        self.refused(2, "--pin", "run", "--pin", "1,x", "-p", "x")
        self.refused(2, "ppl needs -f", "ppl")
        self.refused(2, "synth needs", "synth")
        self.refused(2, "-o -: standard output", "synth", "-o", "-")
        self.refused(2, "from 1 to 1e+12", "synth", "x", "--set", "rope_base=0")
        self.refused(2, "the model has 5 layers", "synth", "x", "--hash-layers", "99")

    def test_help_and_version(self):
        commands = ["run", "chat", "logits", "tokenize", "detokenize", "inspect", "ppl", "bench", "topo", "plan", "synth"]
        overview = self.ok("--help").decode()
        for name in commands:
            self.assertIn(f"  {name} ", overview)
            self.assertIn(f"modchip {name}", self.ok(name, "--help").decode())
        self.assertNotIn("serve", overview)
        self.assertIn("bench kernels", self.ok("bench", "kernels", "--help").decode())
        version = self.ok("--version").decode()
        self.assertRegex(version, r"modchip \d+\.\d+\.\d+")
        self.assertRegex(version, r"kernels: (scalar|avx2|avx512)")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
