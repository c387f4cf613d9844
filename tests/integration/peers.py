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


class Prometheus:
    """Debian's Prometheus with its data and configuration in `scratch`."""

    def __init__(self, scratch, config):
        self.port = free_port()
        self.config_path = os.path.join(scratch, "prometheus.yml")
        self.log_path = os.path.join(scratch, "prometheus.log")
        self.write_config(config)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus", "prometheus"),
                    f"--config.file={self.config_path}",
                    f"--storage.tsdb.path={os.path.join(scratch, 'prometheus-data')}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--web.enable-lifecycle",
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
