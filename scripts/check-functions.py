#!/usr/bin/env python3
"""Fails on a call of a banned function: check-functions.py [ROOT]

Each group has its own reach. A call that is right all the same says why, on its line or the line
above: /* allow(read): an eventfd, not a file */
"""

import os
import re

import source_tree

LIBRARIES = {"base", "wal", "engine", "compactor", "promql", "api"}
PRODUCT = LIBRARIES | {"tools", "bench"}
EVERYWHERE = PRODUCT | {"tests"}

# (functions, folders it holds in, files left out, what to do instead)
GROUPS = (
    (
        "strcpy strcat strncat sprintf vsprintf gets strtok strtok_r alloca",
        EVERYWHERE,
        (),
        "use the bounded calls of base/bytes.h or snprintf",
    ),
    ("stpcpy", PRODUCT, (), "use the bounded calls of base/bytes.h or snprintf"),
    ("atoi atol atoll atof", EVERYWHERE, (), "use a parser that reports errors"),
    ("rand srand random srandom drand48", EVERYWHERE, (), "use a seeded generator"),
    ("ctime asctime gmtime localtime", EVERYWHERE, (), "use the reentrant call"),
    (
        "sleep usleep nanosleep clock_nanosleep",
        LIBRARIES | {"tests"},
        ("base/",),
        "wait for an event; tests move a fake clock",
    ),
    (
        "time gettimeofday clock_gettime clock ftime",
        PRODUCT,
        ("base/clock.c",),
        "every clock passes through base/clock.h",
    ),
    (
        "open open64 openat creat fopen fopen64 freopen fdopen tmpfile mkstemp mkdtemp read pread "
        "pread64 readv preadv write pwrite pwrite64 writev pwritev fsync fdatasync syncfs "
        "sync_file_range fallocate posix_fallocate ftruncate truncate rename renameat renameat2 "
        "unlink unlinkat remove link linkat symlink symlinkat mkdir mkdirat rmdir opendir "
        "fdopendir mmap msync copy_file_range sendfile flock lockf",
        PRODUCT,
        ("base/",),
        "every file call passes through base/file.h",
    ),
    (
        "printf vprintf fprintf vfprintf dprintf puts fputs putchar putc fputc perror syslog "
        "warn warnx err errx",
        LIBRARIES,
        ("base/log.c", "base/assert.c"),
        "library code returns errors; whoever handles one logs it with base/log.h",
    ),
)
CALL = re.compile(r"(?<![\w.])([a-z_][a-z0-9_]*)\s*\(")
ALLOW = re.compile(r"allow\(([a-z0-9_, ]+)\): *\S")


def is_call(text, match):
    """False for members (x->read(...)), declarations of ours and macro parameters."""
    before = text[: match.start()].rstrip()
    if before.endswith("->"):
        return False
    # `enum err read(` would be a declaration of a function of that name, not a call.
    return not re.search(r"[\w*]$", before) or re.search(r"\b(return|else|do|case)$", before)


def banned_calls(path):
    """{function: advice} for one file."""
    folder = path.split(os.sep)[0]
    banned = {}
    for names, folders, left_out, advice in GROUPS:
        if folder in folders and not any(path.startswith(p) for p in left_out):
            banned.update((name, advice) for name in names.split())
    return banned


def allowed_on(lines, index):
    """Names that a comment on this line or the one above allows."""
    names = set()
    for line in lines[max(0, index - 1) : index + 1]:
        for match in ALLOW.finditer(line):
            names.update(n.strip() for n in match.group(1).split(","))
    return names


def main():
    root = source_tree.root_of_arguments()
    findings = []
    for path in source_tree.files(root, source_tree.SOURCE_SUFFIXES, source_tree.MODULES):
        banned = banned_calls(path)
        original = source_tree.read(root, path)
        lines = original.split("\n")
        text = source_tree.without_comments(original)
        for match in CALL.finditer(text):
            name = match.group(1)
            if name not in banned or not is_call(text, match):
                continue
            index = text.count("\n", 0, match.start())
            if name not in allowed_on(lines, index):
                findings.append(f"{path}:{index + 1}: {name}(): {banned[name]}")
    source_tree.finish("check-functions", findings)


if __name__ == "__main__":
    main()
