#!/usr/bin/env python3
"""The layout check: who includes whom, what stays behind the seam, what may not be called, how long things may be.

The table below is the table of rooms in README.md, "The house". Prints each finding as file:line and ends with 1 if there is one.
"""
import os
import re
import subprocess
import sys

TOP = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", ".clang-format", ".gitignore", ".gitattributes", ".ci", "io", "kernels", "models",
       "platform", "runtime", "scripts", "tests", "topology"}

# room -> what its files may include (prefixes of project paths); itself always
ROOMS = [
    ("platform/base", []),
    ("platform/os.h", ["platform/base"]),
    ("platform/linux", ["platform/os.h", "platform/base"]),
    ("platform/windows", ["platform/os.h", "platform/base"]),
    ("kernels/check", ["kernels", "platform"]),
    ("kernels", ["platform/base/compiler.h", "platform/base/bytes.h"]),
    ("topology", ["platform"]),
    ("io", ["platform", "kernels/quant/types.h"]),
    ("runtime/model/shape.h", []),
    ("runtime/control", ["platform"]),
    ("runtime/cache", ["platform", "runtime/model/shape.h", "kernels/kernels.h"]),
    ("runtime/model", ["platform", "kernels", "topology/workers.h", "io/gguf/gguf.h", "io/weights/weights.h", "io/experts/expert_cache.h", "runtime/cache", "runtime/control/settings.h"]),
    ("runtime/text", ["platform", "io/gguf/gguf.h"]),
    ("runtime/engine", ["platform", "runtime/control/settings.h", "runtime/model", "runtime/cache", "io", "topology", "kernels"]),
    ("runtime/app", ["platform", "kernels", "topology", "io", "runtime"]),
    ("tests", [""]),
]

# header of the outside -> the only files that may include it
OUTSIDE = {
    "jansson.h": {"platform/base/json.c"}, "xxhash.h": {"platform/base/hash.c"},
    "hwloc.h": {"topology/discover.c"}, "editline/readline.h": {"runtime/app/cmd_chat.c"}, "histedit.h": {"runtime/app/cmd_chat.c"},
    "liburing.h": {"platform/linux/*"}, "numa.h": {"platform/linux/*"}, "numaif.h": {"platform/linux/*"}, "immintrin.h": {"kernels/*"}, "windows.h": {"platform/windows/*", "tests/unit/platform/*"},
    "unistd.h": {"platform/linux/*", "tests/*"}, "sys/mman.h": {"platform/linux/*", "tests/*"}, "pthread.h": {"platform/linux/*", "tests/*"},
    "fcntl.h": {"platform/linux/*", "platform/windows/*", "tests/*"}, "signal.h": {"platform/linux/*", "tests/*"},
}
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|strtok|atoi|gets|alloca)\s*\(")
APP_ONLY = re.compile(r"\b(exit|abort|getenv|printf|puts|putchar)\s*\(")
SEAM = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif).*\b(_WIN32|__linux__|__MINGW32__|_MSC_VER)\b")
LONG_FUNCTION, LONG_FILE = 80, 800
# longer for a stated reason: tables, one straight story
LONG_ALLOWED = {"kernels/quant/grids.c", "kernels/quant/grids.h"}

findings = []


def find(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def room_of(path):
    for name, allowed in ROOMS:
        if path == name or path.startswith(name + "/"):
            return name, allowed
    return None, None


def matches(path, patterns):
    return any(path == p or (p.endswith("*") and path.startswith(p[:-1])) for p in patterns)


def strip_comments(text):
    """comments and string contents become blanks, line breaks stay"""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()) if m.group()[0] == "/" else '""', text, flags=re.S)


def check_includes(path, text):
    room, allowed = room_of(path)
    if room is None:
        return find(path, 1, "belongs to no room of the layout table")
    for n, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s+([<"])([^">]+)[">]', line)
        if not m:
            continue
        kind, name = m.groups()
        if kind == '"':
            if not os.path.exists(name):
                find(path, n, f'include "{name}" is no path from the root')
            elif not (name.startswith(room + "/") or any(name.startswith(a) for a in allowed)):
                find(path, n, f"{room} may not include {name}")
        elif name in OUTSIDE and not matches(path, OUTSIDE[name]):
            find(path, n, f"<{name}> may only be included in {', '.join(sorted(OUTSIDE[name]))}")


def check_code(path, text):
    code = strip_comments(text)
    product = not path.startswith("tests/")
    for n, line in enumerate(code.split("\n"), 1):
        m = BANNED.search(line)
        if m:
            find(path, n, f"{m.group(1)} is banned")
        m = APP_ONLY.search(line)
        if m and product and not path.startswith(("runtime/app", "platform/linux", "platform/windows")):
            find(path, n, f"{m.group(1)} belongs into runtime/app")
        if product and SEAM.match(line) and not path.startswith("platform/"):
            find(path, n, "an operating system's macro outside platform/")
        if re.search(r"\b(TODO|FIXME|XXX)\b", text.split("\n")[n - 1]):
            find(path, n, "open note; say NEEDSWORK: with its reason, or do it")
    if path in LONG_ALLOWED or not product:
        return
    if code.count("\n") > LONG_FILE:
        find(path, 1, f"{code.count(chr(10))} lines; split it (limit {LONG_FILE})")
    start, depth = 0, 0
    for n, line in enumerate(code.split("\n"), 1):
        if depth == 0 and line.startswith("{"):
            start = n
        depth += line.count("{") - line.count("}")
        if depth == 0 and start and line.startswith("}"):
            if n - start > LONG_FUNCTION:
                find(path, start, f"a function of {n - start} lines (limit {LONG_FUNCTION})")
            start = 0


def check_headers_alone(headers):
    """each header compiles by itself and guards itself with its path"""
    for path in headers:
        text = open(path, encoding="utf-8").read()
        if path.startswith(("kernels/avx2", "kernels/avx512", "kernels/vec")) or path.endswith(".inc.h"):
            continue                                # need the flags of their folder
        guard = re.sub(r"\W", "_", path).upper()
        if f"#ifndef {guard}" not in text:
            find(path, 1, f"include guard is not {guard}")
        r = subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-I.", '-DMC_MODELS="."', '-DMC_TEST_DATA="."', "-Wall", "-Wextra", "-Wno-unused-function", "-fsyntax-only",
                            "-x", "c", path], capture_output=True, text=True)
        if r.returncode and "pragma once in main file" not in r.stderr:
            find(path, 1, "does not compile alone: " + (r.stderr.strip().split("\n") or [""])[0])


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    files = [f for f in files if f and os.path.exists(f)]
    for top in sorted({f.split("/")[0] for f in files} - TOP):
        find(top, 1, "the top level is fixed")
    sources = [f for f in files if f.endswith((".c", ".h")) and not f.startswith("models/")]
    for path in sources:
        text = open(path, encoding="utf-8").read()
        check_includes(path, text)
        check_code(path, text)
    check_headers_alone([f for f in sources if f.endswith(".h")])
    print("\n".join(findings))
    print(f"layout: {len(sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
