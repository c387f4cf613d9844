#!/usr/bin/env python3
"""A real vmagent as client: it does not sort its labels, and flushes what it holds when it stops.

Debian's vmagent scrapes itself and Rimstone, and writes the same blocks to Rimstone and to Debian's
Prometheus. Afterwards both hold the same samples.
"""

import os
import signal
import subprocess
import sys
import time

from harness import Server, TemporaryDirectory, free_port, wait_until
from peers import Prometheus, program, wait_for_same_samples

SCRAPED_S = float(os.environ.get("SCRAPED_S", "8"))
SCRAPE = """
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: vmagent
    static_configs: [{targets: ['127.0.0.1:VMAGENT'], labels: {zone: z, area: a}}]
  - job_name: rimstone
    static_configs: [{targets: ['127.0.0.1:RIMSTONE']}]
"""


def start_vmagent(scratch, server, prometheus):
    port = free_port()
    config = os.path.join(scratch, "scrape.yml")
    with open(config, "w", encoding="utf-8") as f:
        f.write(SCRAPE.replace("VMAGENT", str(port)).replace("RIMSTONE", str(server.port)))
    with open(os.path.join(scratch, "vmagent.log"), "ab") as log:
        return subprocess.Popen(
            [
                program("victoria-metrics", "vmagent"),
                f"-httpListenAddr=127.0.0.1:{port}",
                f"-promscrape.config={config}",
                f"-remoteWrite.tmpDataPath={os.path.join(scratch, 'vmagent-data')}",
                f"-remoteWrite.url=http://127.0.0.1:{server.port}/api/v1/write",
                f"-remoteWrite.url=http://127.0.0.1:{prometheus.port}/api/v1/write",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )


def main():
    with TemporaryDirectory("vmagent") as scratch:
        with Server(os.path.join(scratch, "data")) as server, Prometheus(
            scratch, "", "--web.enable-remote-write-receiver"
        ) as prometheus:
            server.wait_ready()
            ours, theirs = server.client(), prometheus.client()
            vmagent = start_vmagent(scratch, server, prometheus)
            try:
                wait_until(
                    lambda: len(ours.query(f"count_over_time(up[10m]) >= {SCRAPED_S}")["result"]) == 2,
                    "samples of both targets", SCRAPED_S + 60, 0.5,
                )
                vmagent.send_signal(signal.SIGTERM)
                vmagent.wait(30)
            finally:
                vmagent.kill()
            samples = wait_for_same_samples(theirs, ours, round(time.time(), 3))
            assert any(dict(key).get("zone") == "z" for key in samples)
            assert server.stop() == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
