"""Searches files by a regular expression. A program of its own, since compiling and matching a pattern can take
forever: it is killed then.

Uses the standard library only and is started by its path. The order is on stdin, with the descriptor of the folder or
file that the caller has opened; the matches go to stdout. Links are not followed.
"""

import json
import os
import re
import resource
import stat
import sys

# Exit code.
INVALID_PATTERN = 3

_SNIFFED_BYTES = 8192
# Longer ones are not lines that a person wrote.
_LINE_CHARACTERS = 2_000
_SHOWN_CHARACTERS = 300
_FILE_BYTES = 16 * 1024 * 1024
_MEMORY_BYTES = 1024 * 1024 * 1024
# Also without a worker that would kill it.
_PROCESSOR_SECONDS = 20


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_SECONDS, _PROCESSOR_SECONDS))
    os.nice(5)
    order = json.load(sys.stdin)
    try:
        pattern = re.compile(order["pattern"])
    except (re.error, OverflowError, RecursionError) as fault:
        sys.stdout.buffer.write(str(fault).encode("utf-8", "replace"))
        sys.exit(INVALID_PATTERN)
    left, start = order["max_bytes"], order["descriptor"]
    if stat.S_ISDIR(os.fstat(start).st_mode):
        os.fchdir(start)
        found: dict[str, str | None] = {f"{order['prefix']}{path}": path for path in _files(order["skipped"])}
    else:
        found = {order["path"]: None}
    for shown, path in sorted(found.items()):
        descriptor = start if path is None else _open(path)
        for number, line in _matches(descriptor, pattern):
            text = f"{shown}:{number}:{line[:_SHOWN_CHARACTERS]}".replace("\0", "").encode("utf-8", "replace")
            left -= len(text) + 1
            if left < 0:
                sys.stdout.buffer.write(b"[There are more matches.]\n")
                return
            sys.stdout.buffer.write(text + b"\n")
            sys.stdout.buffer.flush()


def _files(skipped: str | None) -> "list[str]":
    found: list[str] = []
    for folder, folders, names in os.walk("."):
        prefix = "" if folder == "." else f"{folder[2:]}/"
        folders[:] = [name for name in folders if name != ".git" and f"{prefix}{name}" != skipped]
        found += [f"{prefix}{name}" for name in names]
    return found


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1


def _matches(descriptor: int, pattern: "re.Pattern[str]") -> "list[tuple[int, str]]":
    if descriptor < 0:
        return []
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        content = file.read(_FILE_BYTES)
    if b"\0" in content[:_SNIFFED_BYTES]:
        return []
    lines = content.decode("utf-8", "replace").split("\n")
    return [
        (number, line) for number, line in enumerate(lines, 1) if pattern.search(line[:_LINE_CHARACTERS]) is not None
    ]


if __name__ == "__main__":
    main()
