"""What the tests of the running life cycle share: the manifest's list of files, metrics, and what a
process holds. Python's standard library only."""

import os
import struct
import subprocess

from harness import RIMTOOL

HOUR_MS = 3600 * 1000
WINDOW_MS = 2 * HOUR_MS
KINDS = {1: "sealed", 2: "late", 3: "series"}


def manifest_sections(data_dir):
    """{kind: content} of docs/formats/manifest.md."""
    with open(os.path.join(data_dir, "manifest"), "rb") as f:
        data = f.read()
    assert data[:8] == b"RIMMANIF", data[:8]
    version = struct.unpack_from("<I", data, 8)[0]
    if version == 1:
        return {}
    assert version == 2, version
    count = struct.unpack_from("<I", data, 248)[0]
    at, sections = 256, {}
    for _ in range(count):
        kind, _, size = struct.unpack_from("<IIQ", data, at)
        sections[kind] = data[at + 16 : at + 16 + size]
        assert len(sections[kind]) == size
        at += 16 + size
    return sections


def manifest_parts(data_dir):
    """The parts as dicts: stem of the names, window, samples, bytes of both files."""
    content = manifest_sections(data_dir).get(3, b"")
    parts = []
    for at in range(0, len(content), 96):
        start, size, resolution, generation, shard, shards, retention, _ = struct.unpack_from(
            "<qQQQIIII", content, at
        )
        _, _, samples, index_size, chunks_size = struct.unpack_from("<qqQQQ", content, at + 48)
        parts.append({
            "stem": f"part-{start}-{size}-{shard}of{shards}-r{resolution}-c{retention}"
                    f"-g{generation}",
            "window_start_ms": start,
            "window_size_ms": size,
            "sample_count": samples,
            "bytes": index_size + chunks_size,
        })
    return parts


def manifest_names(data_dir):
    """The files the manifest names, as paths below the data directory."""
    content = manifest_sections(data_dir).get(2, b"")
    names = set()
    for at in range(0, len(content), 32):
        kind, shard, _, _, number = struct.unpack_from("<IIIIQ", content, at)
        names.add(f"shards/{shard:04d}-{number:010d}.{KINDS[kind]}")
    for part in manifest_parts(data_dir):
        names.update(f"parts/{part['stem']}.{suffix}" for suffix in ("index", "chunks"))
    return names


def files_there(data_dir):
    """The files in the two folders that the manifest speaks of."""
    names = set()
    for folder in ("shards", "parts"):
        path = os.path.join(data_dir, folder)
        if os.path.isdir(path):
            names.update(f"{folder}/{name}" for name in os.listdir(path))
    return names


def unnamed_files(data_dir):
    """(files that nobody names, files that are not there). Both empty while the store is at rest."""
    names = manifest_names(data_dir)
    there = files_there(data_dir)
    return there - names, names - there


def metrics(client):
    """{metric with labels as printed: value}"""
    answer = client.get("/metrics")
    assert answer.status == 200, answer
    return parse_metrics(answer.text)


def parse_metrics(text):
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


def metric_sum(values, name):
    """Over all label sets of a metric; None when there is none of that name."""
    found = [v for n, v in values.items() if n.split("{", 1)[0] == name]
    return sum(found) if found else None


def resident_bytes(pid, kind="VmRSS"):
    """kind: "RssAnon" leaves out what the kernel can take back, the program and its libraries."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(f"{kind}:"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no {kind}")


def descriptor_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def removed_files_open(pid):
    """Files that have lost their name and are held open: their space is not free."""
    names = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue
        if target.endswith(" (deleted)") and target.startswith("/") and "memfd" not in target:
            names.append(target)
    return names


def folder_bytes(path):
    """Bytes of the files under path; those that a server removes meanwhile are left out."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(folder, name))
            except FileNotFoundError:
                pass
    return total


def verify_directory(data_dir):
    """Every byte of a directory that no server uses."""
    result = subprocess.run(
        [RIMTOOL, "verify", data_dir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, f"rimtool verify: {result.returncode}\n{result.stdout}"
