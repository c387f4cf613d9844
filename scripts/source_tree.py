"""What the check scripts share: the source files of a tree, and C text without its comments."""

import os
import re
import sys

MODULES = ("base", "wal", "engine", "compactor", "promql", "api", "tools", "bench", "tests")
SOURCE_SUFFIXES = (".c", ".h", ".cc")
LEFT_OUT = {"build", "data", ".git", "__pycache__"}

_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)


def root_of_arguments():
    """The tree to check: the first argument, or the one this script lies in."""
    if len(sys.argv) > 1:
        return sys.argv[1]
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(root, suffixes=None, folders=None):
    """Paths relative to root, sorted; only below `folders` when given."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(d for d in subfolders if d not in LEFT_OUT)
        for name in sorted(set(names) - LEFT_OUT):
            path = os.path.relpath(os.path.join(folder, name), root)
            if folders is not None and path.split(os.sep)[0] not in folders:
                continue
            if suffixes is None or name.endswith(suffixes):
                found.append(path)
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def without_comments(text, keep_literals=False):
    """Blanks comments and, unless told, the insides of literals; line numbers stay."""

    def blank(match):
        piece = match.group(0)
        if piece[0] != "/":
            return piece if keep_literals else piece[0] + piece[-1] + "\n" * piece.count("\n")
        return " " + "\n" * piece.count("\n")

    return _COMMENT_OR_LITERAL.sub(blank, text)


def finish(name, findings):
    """Prints the findings and exits: 0 when there are none."""
    for finding in findings:
        print(finding)
    if findings:
        print(f"{name}: {len(findings)} finding(s)")
        sys.exit(1)
    sys.exit(0)
