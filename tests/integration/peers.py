"""Runs programs of Debian packages that peers.sh unpacked."""

import os
import subprocess
import sys

from harness import REPOSITORY, free_port, wait_until, Client

SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def program(package, name):
    """Path of a peer's program. Without the package: a failure in CI, elsewhere a skipped test."""
    script = os.path.join(REPOSITORY, "tests", "integration", "peers.sh")
    done = subprocess.run([script, package], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"skipped: the Debian package {package} is not to be had here")
        sys.exit(1 if os.environ.get("CI") else SKIPPED)
    return os.path.join(done.stdout.strip(), package, "usr", "bin", name)


def raw_samples(client, at_s):
    """{labels: [[t, value text]]} of everything but staleness markers, from either server."""
    data = client.query('{__name__=~".+"}[10m]', at_s)
    return {tuple(sorted(r["metric"].items())): r["values"] for r in data["result"]}


def first_difference(theirs, ours):
    """A text that names one sample or series which only one store has, or None."""
    for key in theirs.keys() | ours.keys():
        a, b = theirs.get(key, []), ours.get(key, [])
        if a != b:
            only_a = [s for s in a if s not in b][:3]
            only_b = [s for s in b if s not in a][:3]
            return f"{dict(key)}: Prometheus alone has {only_a}, Rimstone alone {only_b}"
    return None


def wait_for_same_samples(theirs, ours, at_s, deadline_s=60):
    """Polls until both clients' servers hold the same samples, and returns them."""
    state = {}

    def equal():
        state["samples"] = raw_samples(theirs, at_s)
        state["difference"] = first_difference(state["samples"], raw_samples(ours, at_s))
        return state["difference"] is None

    try:
        wait_until(equal, "both stores hold the same samples", deadline_s, 0.5)
    except TimeoutError:
        print(state["difference"])
        raise
    count = sum(map(len, state["samples"].values()))
    print(f"both hold {len(state['samples'])} series and {count} samples", flush=True)
    return state["samples"]


class Prometheus:
    """A Prometheus, Debian's or `binary`, with its data and configuration in `scratch`."""

    def __init__(self, scratch, config, *flags, binary=None):
        self.port = free_port()
        self.config_path = os.path.join(scratch, "prometheus.yml")
        self.log_path = os.path.join(scratch, "prometheus.log")
        self.write_config(config)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [
                    binary or program("prometheus", "prometheus"),
                    f"--config.file={self.config_path}",
                    f"--storage.tsdb.path={os.path.join(scratch, 'prometheus-data')}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--web.enable-lifecycle",
                    *flags,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )

    def __enter__(self):
        wait_until(self.is_ready, "Prometheus is ready")
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        if kind is not None:
            with open(self.log_path, encoding="utf-8", errors="replace") as f:
                print(f"--- end of {self.log_path}\n{f.read()[-4000:]}")

    def client(self):
        return Client(self.port)

    def is_ready(self):
        assert self.process.poll() is None, "Prometheus exited"
        client = self.client()
        try:
            return client.get("/-/ready").status == 200
        except OSError:
            return False
        finally:
            client.close()

    def write_config(self, config):
        with open(self.config_path, "w", encoding="utf-8") as f:
            f.write(config.replace("PORT", str(self.port)))

    def reload(self, config):
        self.write_config(config)
        answer = self.client().request("POST", "/-/reload")
        assert answer.status == 200, answer
