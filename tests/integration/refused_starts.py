#!/usr/bin/env python3
"""Directories and machines on which the server must not start: what it says, and that nothing in the
directory changes by it.

Each kind of file gets the version and the features of a later program, with right checksums; then the
limit of open files is too low for the store.
"""

import os
import resource
import shutil
import struct
import subprocess
import sys
import unittest

from harness import RIMSTONE, RIMTOOL, Server, TemporaryDirectory, now_ms, wait_until
from lifecycle import HOUR_MS, metric_sum, metrics

FLAGS = ["--storage.clock=data", "--storage.seal-interval=1m", "--storage.shards=2"]
UNKNOWN_BIT = 1 << 30


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# suffix -> (offset and form of the version, of the features, size of what the checksum behind it covers)
HEADERS = {
    "manifest": ((8, "<I"), (16, "<Q"), 252),
    "wal": ((8, "<H"), (12, "<I"), 60),
    "sealed": ((8, "<H"), (12, "<I"), 60),
    "late": ((8, "<H"), (12, "<I"), 60),
    "series": ((8, "<H"), (12, "<I"), 60),
    "index": ((8, "<I"), (24, "<Q"), 36),
    "chunks": ((8, "<I"), (24, "<Q"), 36),
}


def suffix_of(path):
    return os.path.basename(path).rsplit(".", 1)[-1]


def files_of(data_dir):
    return [os.path.join(folder, n) for folder, _, names in os.walk(data_dir) for n in names]


def contents(data_dir):
    """Of all files but the lock, which holds the number of the last process."""
    found = {}
    for path in files_of(data_dir):
        if os.path.basename(path) != "lock":
            with open(path, "rb") as f:
                found[os.path.relpath(path, data_dir)] = f.read()
    return found


def write_later(path, what):
    (version_at, version_form), (features_at, features_form), size = HEADERS[suffix_of(path)]
    with open(path, "r+b") as f:
        head = bytearray(f.read(size))
        if what == "version":
            version = struct.unpack_from(version_form, head, version_at)[0]
            struct.pack_into(version_form, head, version_at, version + 1)
        else:
            struct.pack_into(features_form, head, features_at, UNKNOWN_BIT)
        f.seek(0)
        f.write(head + struct.pack("<I", crc32c(head)))


def start(data_dir, *flags, limit=None):
    """A server that is expected to refuse: its exit code and what it said."""
    result = subprocess.run(
        [RIMSTONE, f"--storage.tsdb.path={data_dir}", "--web.listen-address=127.0.0.1:0", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))),
    )
    return result.returncode, result.stdout


def fill(data_dir):
    """A part, sealed files, late ones, a log."""
    start_ms = (now_ms() - 12 * HOUR_MS) // (2 * HOUR_MS) * 2 * HOUR_MS
    with Server(data_dir, *FLAGS).wait_ready() as server:
        client = server.client()
        for i in range(200):
            t = start_ms + i * 60000
            series = [({"__name__": "m", "s": str(s)}, [(t, i + s)]) for s in range(8)]
            assert client.write(series).status == 204
        wait_until(lambda: metric_sum(metrics(client), "rimstone_flushes_total") >= 2, "a flush")
        series = [({"__name__": "m", "s": str(s)}, [(start_ms + 30500, 5.0)]) for s in range(8)]
        assert client.write(series).status == 204
        client.close()
        server.kill()  # what is sealed by now is: the late samples are at least in the log
    return {suffix_of(p) for p in files_of(data_dir)}


class RefusedStarts(unittest.TestCase):
    def test_later_formats(self):
        with TemporaryDirectory("later") as scratch:
            data_dir = os.path.join(scratch, "data")
            kinds = fill(data_dir)
            self.assertLessEqual({"manifest", "wal", "series", "sealed", "index", "chunks"}, kinds)
            for kind in sorted(kinds & set(HEADERS)):
                for what in ("version", "features"):
                    with self.subTest(kind=kind, what=what):
                        self.check_later(scratch, data_dir, kind, what)

    def check_later(self, scratch, data_dir, kind, what):
        copy = os.path.join(scratch, "copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(data_dir, copy)
        path = max((p for p in files_of(copy) if suffix_of(p) == kind), key=os.path.getsize)
        write_later(path, what)
        before = contents(copy)
        code, text = start(copy, *FLAGS)
        self.assertEqual(code, 1, text)
        errors = [line for line in text.splitlines() if "level=error" in line]
        self.assertEqual(len(errors), 1, text)
        self.assertIn(os.path.basename(path), errors[0])
        self.assertRegex(errors[0], "version|features")
        self.assertEqual(contents(copy), before)
        # Neither does the tool call it whole or damaged, nor change it.
        verify = subprocess.run([RIMTOOL, "verify", copy], stdout=subprocess.PIPE, text=True)
        self.assertEqual(verify.returncode, 2, verify.stdout)
        self.assertRegex(verify.stdout, f"(?m)^not checked: .*{os.path.basename(path)}")
        self.assertIn(" 0 damaged, 1 not checked,", verify.stdout)
        self.assertEqual(contents(copy), before)

    def test_too_few_descriptors(self):
        with TemporaryDirectory("descriptors") as scratch:
            data_dir = os.path.join(scratch, "data")
            code, text = start(data_dir, limit=64)
            self.assertEqual(code, 1, text)
            self.assertIn("at most 64 files may be open", text)


if __name__ == "__main__":
    sys.exit(unittest.main())
