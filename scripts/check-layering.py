#!/usr/bin/env python3
"""Fails on an include that points the wrong way: check-layering.py [ROOT]

The table is the one in docs/architecture.md. Includes name their file from the root of the
repository; headers that end in _internal.h stay inside their folder (tests may include anything).
Libraries that only one layer may know are listed too.
"""

import os
import re

import source_tree

MAY_INCLUDE = {
    "base": {"base"},
    "wal": {"base", "wal"},
    "engine": {"base", "wal", "engine"},
    "compactor": {"base", "wal", "engine", "compactor"},
    "promql": {"base", "wal", "engine", "promql"},
    "api": {"base", "wal", "engine", "compactor", "promql", "api"},
    "tools": {"base", "wal", "engine", "compactor", "promql", "api", "tools"},
    "bench": {"base", "wal", "engine", "compactor", "promql", "api", "tools", "bench"},
    "tests": set(source_tree.MODULES),
}
# Library headers (a prefix of the name between the brackets) and the folders that may see them.
LIBRARY_FOLDERS = {
    "liburing.h": {"base"},
    "re2/": {"base"},
    "double-conversion/": {"base"},
    "nettle/": {"base"},
    "microhttpd.h": {"api"},
    "yaml.h": {"api", "tools"},
    "roaring/": {"engine"},
    "curl/": {"tools", "bench"},
}
GENERATED = ".pb-c.h"  # written into the build folder by protoc-c
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def judge(root, path, is_quoted, target):
    """The reason why `path` must not include `target`, or None."""
    folder = path.split(os.sep)[0]
    target_folder = target.split("/")[0] if "/" in target else ""
    if not is_quoted:
        if target_folder in source_tree.MODULES:
            return "our own headers are included with quotes"
        for prefix, allowed in LIBRARY_FOLDERS.items():
            if target.startswith(prefix) and folder != "tests" and folder not in allowed:
                return f"only {', '.join(sorted(allowed))} may include this library"
        return None
    if target.endswith(GENERATED):
        return None if folder in ("api", "tests") else "only api and tests know protobuf-c"
    if target_folder not in source_tree.MODULES or ".." in target.split("/"):
        return "name the file from the root of the repository"
    if not os.path.isfile(os.path.join(root, target)):
        return "no such file"
    if target_folder not in MAY_INCLUDE[folder]:
        return f"{folder} may include only {', '.join(sorted(MAY_INCLUDE[folder]))}"
    if folder not in (target_folder, "tests") and target.endswith("_internal.h"):
        return f"this header is private to {target_folder}"
    return None


def main():
    root = source_tree.root_of_arguments()
    findings = []
    for path in source_tree.files(root, source_tree.SOURCE_SUFFIXES, source_tree.MODULES):
        text = source_tree.without_comments(source_tree.read(root, path), keep_literals=True)
        for match in INCLUDE.finditer(text):
            reason = judge(root, path, match.group(1) == '"', match.group(2))
            if reason is not None:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{path}:{line}: include of {match.group(2)}: {reason}")
    source_tree.finish("check-layering", findings)


if __name__ == "__main__":
    main()
