"""What the integration tests share: the server as a process, HTTP, and a remote-write encoder.

Python's standard library only. The binaries come from the environment (RIMSTONE, RIMTOOL), set by
ctest; by hand the dev build is used.
"""

import ctypes
import ctypes.util
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse

from native_histograms import Histogram
from protobuf import field_bytes, varint

REPOSITORY = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RIMSTONE = os.environ.get("RIMSTONE", os.path.join(REPOSITORY, "build", "dev", "rimstone"))
RIMTOOL = os.environ.get("RIMTOOL", os.path.join(REPOSITORY, "build", "dev", "rimtool"))
# Sanitizer builds and busy machines are slow; a deadline is for what hangs, not for speed.
PATIENCE_S = 60.0


def free_port():
    """A port of the loopback address that nobody used a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what, deadline_s=PATIENCE_S, interval_s=0.02):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s} s in vain: {what}")
        time.sleep(interval_s)


class Answer:
    """One HTTP answer, its body read whole."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.text[:300]!r}>"


class Client:
    """Requests to one server. A connection per client and thread; reconnects when it was closed."""

    def __init__(self, port, timeout_s=PATIENCE_S):
        self.port = port
        self.timeout_s = timeout_s
        self.connection = None

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def request(self, method, path, body=None, headers=None):
        """Any failure of the connection is raised: the caller decides what it means."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=self.timeout_s
            )
        try:
            self.connection.request(method, path, body=body, headers=headers or {})
            answer = Answer(self.connection.getresponse())
        except BaseException:
            self.close()
            raise
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def get(self, path, params=None, headers=None):
        if params:
            path += "?" + urllib.parse.urlencode(params, doseq=True)
        return self.request("GET", path, headers=headers)

    def post_form(self, path, params):
        return self.request(
            "POST",
            path,
            urllib.parse.urlencode(params, doseq=True).encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )

    def write(self, series, headers=None):
        """Remote write 1.0 of [(labels, [(t_ms, value)])]."""
        return self.write_body(snappy_literals(write_request(series)), headers)

    def write_body(self, body, headers=None):
        """headers None: what Prometheus sends."""
        if headers is None:
            headers = {
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            }
        return self.request("POST", "/api/v1/write", body, headers)

    def query(self, expression, at_s=None):
        """The data of a successful instant query (POST, so that long ones fit)."""
        params = {"query": expression}
        if at_s is not None:
            params["time"] = at_s
        answer = self.post_form("/api/v1/query", params)
        if answer.status != 200:
            raise AssertionError(f"query {expression}: {answer}")
        return answer.json["data"]


class Server:
    """A rimstone process on a free port. Use as a context manager, or stop() it."""

    def __init__(self, data_dir, *flags, binary=None, port=None):
        self.data_dir = data_dir
        self.port = port if port is not None else free_port()
        self.log_path = data_dir.rstrip("/") + ".log"
        self.command = [
            binary or RIMSTONE,
            f"--storage.tsdb.path={data_dir}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *flags,
        ]
        with open(self.log_path, "ab") as log:
            # A session of its own: a Ctrl-C at the test's terminal is the test's to handle.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.kill()
        if kind is not None:
            print(f"--- end of {self.log_path}\n{self.log()[-4000:]}")

    def client(self, timeout_s=PATIENCE_S):
        return Client(self.port, timeout_s)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(
                f"the server exited with {self.process.returncode}:\n{self.log()[-4000:]}"
            )
        client = self.client(timeout_s=5)
        try:
            return client.get("/-/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()

    def wait_ready(self):
        wait_until(self.is_ready, "server is ready")
        return self

    def kill(self):
        """SIGKILL: what the power button does to a process."""
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self, deadline_s=30.0):
        """SIGTERM; returns the exit code."""
        self.terminate()
        code = self.process.wait(deadline_s)
        if code != 0:  # a sanitizer's findings among others
            print(f"--- exit code {code}, end of {self.log_path}\n{self.log()[-8000:]}")
        return code


class TemporaryDirectory:
    """Removed at the end, kept (and named) when the test failed."""

    def __init__(self, name):
        self.path = tempfile.mkdtemp(prefix=f"rimstone-{name}-")

    def __enter__(self):
        return self.path

    def __exit__(self, kind, value, trace):
        if kind is None:
            shutil.rmtree(self.path)
        else:
            print(f"kept for a look: {self.path}")


# --- Remote write 1.0, by hand -----------------------------------------------------------------


def encode_label(name, value):
    name = name.encode() if isinstance(name, str) else name
    value = value.encode() if isinstance(value, str) else value
    return field_bytes(1, field_bytes(1, name) + field_bytes(2, value))


def encode_sample(t_ms, value):
    payload = bytearray()
    payload += b"\x09" + (value if isinstance(value, bytes) else struct.pack("<d", value))
    payload += b"\x10" + varint(t_ms)
    return field_bytes(2, bytes(payload))


def encode_series(labels, samples):
    """labels: dict (sorted here, as senders do) or a list of pairs in the order given. Values: floats, the eight
    bytes of one, or native histograms."""
    pairs = sorted(labels.items()) if isinstance(labels, dict) else labels
    body = b"".join(encode_label(n, v) for n, v in pairs)
    body += b"".join(v.encode(t) if isinstance(v, Histogram) else encode_sample(t, v) for t, v in samples)
    return field_bytes(1, body)


def write_request(series):
    return b"".join(encode_series(labels, samples) for labels, samples in series)


def snappy_literals(data):
    """A snappy block that copies nothing: larger than need be, and valid."""
    out = bytearray(varint(len(data)))
    for start in range(0, len(data), 65536):
        piece = data[start : start + 65536]
        if len(piece) <= 60:
            out.append(len(piece) - 1 << 2)
        else:
            out.append(61 << 2)
            out += struct.pack("<H", len(piece) - 1)
        out += piece
    return bytes(out)


def zstd_compress(data):
    """By the library the server links too."""
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    library.ZSTD_compressBound.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int,
    ]
    size = library.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(size)
    written = library.ZSTD_compress(out, size, data, len(data), 1)
    assert written <= size
    return out.raw[:written]


def double_bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def now_ms():
    return time.time_ns() // 1_000_000
