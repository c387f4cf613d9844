#!/usr/bin/env python3
"""Proves that each check of scripts/ can fail, and passes what is right.

Every test writes a small tree into a temporary directory and runs the real script over it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
REPOSITORY = os.path.normpath(os.path.join(SCRIPTS, ".."))


class TreeTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="rimstone-test-checks-")
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def run_check(self, script):
        command = [os.path.join(SCRIPTS, script), self.root]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def assert_passes(self, script):
        code, output = self.run_check(script)
        self.assertEqual((code, output), (0, ""))

    def assert_finds(self, script, *pieces):
        code, output = self.run_check(script)
        self.assertNotEqual(code, 0, output)
        for piece in pieces:
            self.assertIn(piece, output)


class FormatTest(TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(REPOSITORY, ".clang-format"), self.root)

    def test_formatted(self):
        self.write("base/a.c", "int a(void)\n{\n    return 1;\n}\n")
        self.assert_passes("check-format.sh")

    def test_not_formatted(self):
        self.write("base/a.c", "int a(void) {\n  return 1; }\n")
        self.assert_finds("check-format.sh", "base/a.c:1")


class LayeringTest(TreeTest):
    SCRIPT = "check-layering.py"

    def setUp(self):
        super().setUp()
        for module in ("base", "wal", "engine", "compactor", "promql", "api", "tools"):
            self.write(f"{module}/pub.h", "")
            self.write(f"{module}/own_internal.h", "")

    def test_every_allowed_arrow(self):
        order = ["base", "wal", "engine", "promql", "api", "tools", "bench"]
        for index, module in enumerate(order):
            below = [m for m in order[: index + 1] if m != "bench"]
            self.write(f"{module}/a.c", "".join(f'#include "{m}/pub.h"\n' for m in below))
        self.write("compactor/a.c", '#include "engine/pub.h"\n#include "compactor/pub.h"\n')
        self.write("wal/b.c", '#include <stdio.h>\n#include "wal/own_internal.h"\n')
        self.write("tests/wal/t.c", '#include "wal/own_internal.h"\n#include "api/pub.h"\n')
        self.assert_passes(self.SCRIPT)

    def test_every_forbidden_arrow(self):
        order = ["base", "wal", "engine", "promql", "api", "tools"]
        for index, module in enumerate(order):
            for above in order[index + 1 :]:
                self.write(f"{module}/a.c", f'\n#include "{above}/pub.h"\n')
                self.assert_finds(self.SCRIPT, f"{module}/a.c:2: include of {above}/pub.h")
            self.write(f"{module}/a.c", "")

    def test_compactor_and_promql_do_not_know_each_other(self):
        self.write("compactor/a.c", '#include "promql/pub.h"\n')
        self.assert_finds(self.SCRIPT, "compactor/a.c:1")
        self.write("compactor/a.c", "")
        self.write("promql/a.c", '#include "compactor/pub.h"\n')
        self.assert_finds(self.SCRIPT, "promql/a.c:1")

    def test_internal_header_of_another_folder(self):
        for module in ("api", "tools", "bench"):
            self.write(f"{module}/a.c", '#  include "engine/own_internal.h"\n')
            self.assert_finds(self.SCRIPT, f"{module}/a.c:1", "private to engine")
            self.write(f"{module}/a.c", "")

    def test_product_includes_a_test(self):
        self.write("tests/lib/help.h", "")
        self.write("api/a.c", '#include "tests/lib/help.h"\n')
        self.assert_finds(self.SCRIPT, "api/a.c:1")

    def test_paths(self):
        for include in ('"pub.h"', '"../wal/pub.h"', '"wal/missing.h"', "<wal/pub.h>"):
            self.write("engine/a.c", f"#include {include}\n")
            self.assert_finds(self.SCRIPT, "engine/a.c:1")

    def test_comments_do_not_count(self):
        self.write("base/a.c", '/*\n#include "api/pub.h"\n*/\n// #include "api/pub.h"\n')
        self.assert_passes(self.SCRIPT)

    def test_generated_headers_lie_in_the_build_folder(self):
        self.write("tests/fuzz/a.c", '#include "remote_write.pb-c.h"\n')
        self.assert_passes(self.SCRIPT)
        self.write("engine/a.c", '#include "remote_write.pb-c.h"\n')
        self.assert_finds(self.SCRIPT, "engine/a.c:1")

    def test_library_of_another_layer(self):
        self.write("engine/a.c", "#include <microhttpd.h>\n")
        self.assert_finds(self.SCRIPT, "engine/a.c:1", "only api")


class FunctionsTest(TreeTest):
    SCRIPT = "check-functions.py"

    def test_banned_everywhere(self):
        for name in "strcpy strcat sprintf vsprintf gets strtok atoi atol atof alloca rand srand".split():
            for path in ("api/a.c", "tools/a.c", "tests/api/a.c", "base/a.h"):
                self.write(path, f"void f(void)\n{{\n    {name}(x);\n}}\n")
                self.assert_finds(self.SCRIPT, f"{path}:3: {name}()")
                os.remove(os.path.join(self.root, path))

    def test_every_position_of_a_call(self):
        for text in ("x = atoi(s);", "return atoi(s);", "if (atoi(s) > 0)", "(void)atoi (s);",
                     "f(1, atoi(s));", "else\n atoi(s);"):
            self.write("base/a.c", text)
            self.assert_finds(self.SCRIPT, "atoi()")

    def test_file_calls_outside_base(self):
        for name in "open openat read pread write pwrite fsync fdatasync rename unlink mmap".split():
            self.write("wal/a.c", f"    n = {name}(fd, b);\n")
            self.assert_finds(self.SCRIPT, f"wal/a.c:1: {name}()")
        self.write("wal/a.c", "")
        self.write("base/file_posix.c", "    n = pread(fd, b, 1, 0);\n")
        self.write("tests/wal/a.c", "    n = pread(fd, b, 1, 0);\n")
        self.assert_passes(self.SCRIPT)

    def test_clocks(self):
        for name in "time gettimeofday clock_gettime".split():
            self.write("base/log.c", f"    {name}(x);\n")
            self.assert_finds(self.SCRIPT, f"{name}()")
        self.write("base/log.c", "")
        self.write("base/clock.c", "    clock_gettime(0, &ts);\n")
        self.assert_passes(self.SCRIPT)

    def test_library_code_does_not_print(self):
        self.write("engine/a.c", '    fprintf(stderr, "no");\n')
        self.assert_finds(self.SCRIPT, "engine/a.c:1: fprintf()")
        self.write("engine/a.c", "")
        self.write("tools/a.c", '    printf("yes");\n')
        self.assert_passes(self.SCRIPT)

    def test_tests_do_not_sleep(self):
        self.write("tests/wal/a.c", "    usleep(1000);\n")
        self.assert_finds(self.SCRIPT, "usleep()")

    def test_what_is_no_call(self):
        self.write(
            "engine/a.c",
            '/* atoi(s) */ // strcpy(a, b)\nx = "sprintf(";\nops->read(f);\nops.write(f);\n'
            "my_atoi(s);\nint time;\nwal_write(f);\n",
        )
        self.assert_passes(self.SCRIPT)

    def test_allowed_with_a_reason_only(self):
        self.write("api/a.c", "/* allow(read): an eventfd, not a file */\n    read(fd, &n, 8);\n")
        self.assert_passes(self.SCRIPT)
        self.write("api/a.c", "/* allow(write): an eventfd */\n    read(fd, &n, 8);\n")
        self.assert_finds(self.SCRIPT, "api/a.c:2: read()")
        self.write("api/a.c", "// allow(read):\n    read(fd, &n, 8);\n")
        self.assert_finds(self.SCRIPT, "api/a.c:2: read()")


class TreeRulesTest(TreeTest):
    SCRIPT = "check-tree.py"

    def setUp(self):
        super().setUp()
        self.write("wal/README.md", "The log. Public header: `wal/wal.h`.\n")
        self.write("wal/CMakeLists.txt", "add_library(wal STATIC wal.c)\n")
        self.write("wal/wal.c", "/* Diagram: docs/formats/wal.md */\n#define WAL_MAGIC 7\n")
        self.write("wal/wal.h", "")
        self.write("wal/segment_internal.h", "")
        self.write("docs/formats/wal.md", "```\n0   4\n```\n")

    def test_right(self):
        self.assert_passes(self.SCRIPT)

    def test_readme(self):
        self.write("wal/reader.h", "")
        self.assert_finds(self.SCRIPT, "wal/README.md: does not name the public header reader.h")
        os.remove(os.path.join(self.root, "wal/README.md"))
        self.assert_finds(self.SCRIPT, "wal/README.md: missing")

    def test_sources_by_name(self):
        self.write("wal/segment.c", "")
        self.assert_finds(self.SCRIPT, "wal/segment.c: not named")
        self.write("wal/CMakeLists.txt", "file(GLOB sources *.c) # wal.c segment.c\n")
        self.assert_finds(self.SCRIPT, "do not glob")

    def test_no_cxx_outside_base(self):
        self.write("wal/CMakeLists.txt", "add_library(wal STATIC wal.c fast.cc)\n")
        self.write("wal/fast.cc", "")
        self.assert_finds(self.SCRIPT, "wal/fast.cc: C++")

    def test_formats(self):
        self.write("docs/formats/wal.md", "no diagram\n")
        self.assert_finds(self.SCRIPT, "docs/formats/wal.md: has no diagram")
        os.remove(os.path.join(self.root, "docs/formats/wal.md"))
        self.assert_finds(self.SCRIPT, "docs/formats/wal.md is missing")
        self.write("wal/wal.c", "#define WAL_MAGIC 7\n")
        self.assert_finds(self.SCRIPT, "wal/wal.c: defines a magic number")
        self.write("wal/wal.c", "enum {\n    WAL_MAGIC = 7,\n};\n")
        self.assert_finds(self.SCRIPT, "wal/wal.c: defines a magic number")

    def test_machine_paths(self):
        self.write("docs/a.md", "see /work/shared/x\n")
        self.assert_finds(self.SCRIPT, "docs/a.md:1")
        self.write("docs/a.md", "build/fuzz/work/x is fine\n")
        self.assert_passes(self.SCRIPT)


class InstallTest(TreeTest):
    """install-deps.sh with stand-ins for dpkg-query, apt-get, id and sudo."""

    def stand_in(self, name, body):
        self.write(f"bin/{name}", f"#!/bin/sh\n{body}\n")
        os.chmod(os.path.join(self.root, "bin", name), 0o755)

    def install(self, *lists):
        for tool in ("bash", "env"):
            target = os.path.join(self.root, "bin", tool)
            if not os.path.lexists(target):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.symlink(shutil.which(tool), target)
        bash = os.path.join(self.root, "bin", "bash")
        done = subprocess.run(
            [bash, os.path.join(SCRIPTS, "install-deps.sh"), *lists],
            env={"PATH": os.path.join(self.root, "bin")},
            capture_output=True, text=True, check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def test_nothing_missing(self):
        self.stand_in("dpkg-query", "echo -n installed")
        self.stand_in("apt-get", "echo apt-get was called; exit 1")
        self.assertEqual(self.install("build", "test", "check"), (0, ""))

    def test_missing_as_root(self):
        self.stand_in("dpkg-query", 'case "$*" in *cmake*) exit 1;; *) echo -n installed;; esac')
        self.stand_in("apt-get", 'echo "APT $DEBIAN_FRONTEND $*"')
        self.stand_in("id", "echo 0")
        code, output = self.install("build")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"APT noninteractive .*update\n")
        self.assertRegex(output, r"APT noninteractive .*install .* cmake\n")

    def test_missing_as_user(self):
        self.stand_in("dpkg-query", "exit 1")
        self.stand_in("apt-get", 'echo "APT $*"')
        self.stand_in("id", "echo 1000")
        code, output = self.install("build")
        self.assertNotEqual(code, 0)
        self.assertIn("as root run: apt-get install gcc", output)
        self.stand_in("sudo", 'echo "SUDO"; exec "$@"')
        code, output = self.install("build")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("SUDO"), 2)

    def test_not_debian(self):
        code, output = self.install("build")
        self.assertNotEqual(code, 0)
        self.assertIn("Debian 12", output)

    def test_unknown_list(self):
        code, output = self.install("everything")
        self.assertNotEqual(code, 0)
        self.assertIn("unknown list 'everything'", output)


if __name__ == "__main__":
    sys.exit(unittest.main())
