"""Puts samples into Prometheus and, through all of a sample's life, into Rimstone (promql_diff.py --aged).

The requests are the same; a part of the samples comes late. Meanwhile Rimstone seals, flushes, splits, merges and
is killed, so that queries meet parts, sealed and late files and memory, and borders between them.
"""

import re

from harness import Server, wait_until
from native_histograms import by_kind
from promql_generator import STALE

WINDOW_MS = 2 * 3600_000
# A window's border half an hour behind the base; another one before it, where the early markers are.
AGED_BASE_MS = 1_700_000_400_000 // WINDOW_MS * WINDOW_MS + 5_400_000
AGED_CONFIG = "global: {}\nstorage: {tsdb: {out_of_order_time_window: 10d}}\n"
AGED_FLAGS = ("--storage.clock=data", "--storage.seal-interval=1s")
BATCH_MS = 600_000
LATE_SHARE = 0.1  # of the samples of a batch
KILLS = 3


def metric(client, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


class Writer:
    def __init__(self, rng, prometheus, server):
        self.rng = rng
        self.prometheus = prometheus
        self.server = server
        self.ours = server.client()

    def write(self, batch):
        for request in by_kind(batch):
            for client in (self.prometheus, self.ours):
                answer = client.write(request)
                assert answer.status in (200, 204), answer

    def restart(self):
        self.server.kill()
        flags = self.server.command[3:]
        self.server = Server(self.server.data_dir, *flags).wait_ready()
        self.ours = self.server.client()

    def wait_sealed(self):
        """Until the seals, that follow the data's clock, have come to rest."""
        seen = [-1.0, 0]

        def at_rest():
            seals = metric(self.ours, 'rimstone_seals_total{reason="interval"}')
            seen[1] = seen[1] + 1 if seals == seen[0] else 0
            seen[0] = seals
            return seen[1] >= 5  # the checkpoint thread looks four times a second

        wait_until(at_rest, "all shards are sealed", interval_s=0.1)

    def wait_parts(self):
        def settled():
            late = metric(self.ours, 'rimstone_sealed_files{kind="late"}')
            return metric(self.ours, "prometheus_tsdb_blocks_loaded") > 0 and late == 0

        wait_until(settled, "windows become parts")

    def push_clock(self, t_ms):
        """Hours pass. The series is in the way of no query."""
        self.write([({"__name__": "clock"}, [(t_ms, 1.0)])])


def write_aged(rng, prometheus, server, series):
    """Returns the server that has the samples: another one than it was given."""
    writer = Writer(rng, prometheus, server)
    first = min(samples[0][0] for _, samples in series)
    last = max(samples[-1][0] for _, samples in series)
    # Creates all series in the order of their labels, by which Prometheus resolves ties.
    writer.write([(labels, [(first - 7_000_000, STALE)]) for labels, _ in series])
    starts = list(range(first, last + 1, BATCH_MS))
    kills = set(rng.sample(starts, KILLS))
    held = []
    for begin in starts:
        batch, late = [], []
        for labels, samples in series:
            inside = [s for s in samples if begin <= s[0] < begin + BATCH_MS]
            back = {s for s in inside if rng.random() < LATE_SHARE}
            batch.append((labels, [s for s in inside if s not in back]))
            late.append((labels, sorted(back)))
        writer.write([x for x in batch if x[1]])
        if rng.random() < 0.7:
            writer.wait_sealed()
        if begin in kills:
            writer.restart()
        if begin == starts[len(starts) // 2]:
            writer.push_clock(last + 3 * WINDOW_MS)
            writer.wait_parts()
        held.append([x for x in late if x[1]])
        if rng.random() < 0.5:
            writer.write(held.pop(rng.randrange(len(held))))
    writer.wait_sealed()
    writer.wait_parts()
    for late in held:  # the last of these stay in memory and in late files
        writer.write(late)
    return writer.server
