#!/usr/bin/env python3
"""Fails when the tree breaks a rule about where things stand: check-tree.py [ROOT]

- every module folder has a README.md that names each of its public headers;
- every source is named in the CMakeLists.txt of its folder, and none is globbed;
- C++ stays in base, where the shims are;
- a file that defines a magic number names its page in docs/formats, and the page has a diagram;
- no file mentions a path of one particular machine.
"""

import os
import re

import source_tree

MAGIC = re.compile(r"^\s*(?:#define\s+|static const [\w ]+\s)?(\w*MAGIC\w*)\b(?:\s*=|\s+\S)", re.M)
FORMAT_PAGE = re.compile(r"docs/formats/[\w.-]+\.md")
MACHINE_PATH = re.compile(r"(?<![\w$}.-])/(?:work|farm)/|/tmp/rimstone-helpers|/tmp/bash_jobs")
# The check and its self-test must be able to spell what they look for.
MAY_NAME_PATHS = {"scripts/check-tree.py", "tests/scripts/test_checks.py"}


def public_headers(paths, module):
    return [
        os.path.basename(p)
        for p in paths
        if os.path.dirname(p) == module and p.endswith(".h") and not p.endswith("_internal.h")
    ]


def check_readmes(root, paths):
    for module in source_tree.MODULES:
        if not os.path.isdir(os.path.join(root, module)):
            continue
        readme = os.path.join(module, "README.md")
        if readme not in paths:
            yield f"{readme}: missing"
            continue
        text = source_tree.read(root, readme)
        for header in public_headers(paths, module):
            if module != "tests" and not re.search(rf"(?<![\w-]){re.escape(header)}\b", text):
                yield f"{readme}: does not name the public header {header}"


def nearest_cmake(root, path):
    """The CMakeLists.txt that governs a source: the one beside it or the next one up."""
    folder = os.path.dirname(path)
    while folder and not os.path.isfile(os.path.join(root, folder, "CMakeLists.txt")):
        folder = os.path.dirname(folder)
    return os.path.join(folder, "CMakeLists.txt")


def check_sources(root, paths):
    for path in paths:
        if path.split(os.sep)[0] not in source_tree.MODULES:
            continue
        if path.endswith("CMakeLists.txt") and "GLOB" in source_tree.read(root, path):
            yield f"{path}: list sources by name, do not glob"
        if path.endswith(".cc") and not path.startswith(("base/", "tests/")):
            yield f"{path}: C++ is for the shims in base"
        if path.endswith((".c", ".cc")):
            cmake = nearest_cmake(root, path)
            name = os.path.relpath(path, os.path.dirname(cmake))
            text = source_tree.read(root, cmake) if cmake in paths else ""
            everywhere = "".join(
                source_tree.read(root, p) for p in paths if p.endswith("CMakeLists.txt")
            )
            if not re.search(rf"(?<![\w-]){re.escape(name)}\b", text) and path not in everywhere:
                yield f"{path}: not named in {cmake}, so nobody builds it"


def check_formats(root, paths):
    for path in paths:
        if not path.endswith(source_tree.SOURCE_SUFFIXES) or path.startswith(("tests/", "base/")):
            continue
        text = source_tree.read(root, path)
        if not MAGIC.search(source_tree.without_comments(text)):
            continue
        pages = FORMAT_PAGE.findall(text)
        if not pages:
            yield f"{path}: defines a magic number but names no page of docs/formats"
        for page in pages:
            if page not in paths:
                yield f"{path}: {page} is missing"
    for path in paths:
        if path.startswith("docs/formats/") and path.endswith(".md"):
            if path != "docs/formats/README.md" and "```" not in source_tree.read(root, path):
                yield f"{path}: has no diagram"


def check_machine_paths(root, paths):
    for path in paths:
        if path in MAY_NAME_PATHS:
            continue
        for number, line in enumerate(source_tree.read(root, path).split("\n"), 1):
            if MACHINE_PATH.search(line):
                yield f"{path}:{number}: names a path of one particular machine"


def main():
    root = source_tree.root_of_arguments()
    paths = source_tree.files(root)
    findings = []
    for check in (check_readmes, check_sources, check_formats, check_machine_paths):
        findings.extend(check(root, paths))
    source_tree.finish("check-tree", findings)


if __name__ == "__main__":
    main()
