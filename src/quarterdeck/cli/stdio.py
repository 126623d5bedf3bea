"""Prepares stdin, stdout and stderr: closed streams, other character sets, a full disk."""

import io
import os
import sys
from contextlib import suppress

from quarterdeck.cli.exit_codes import ExitCode


def prepare() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by the caller. Opened here, because the next opened file would get its descriptor.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream is not sys.stderr:
            # Replace characters that cannot be encoded instead of failing. stderr does so by default.
            stream.reconfigure(errors="replace")


def finish(code: int) -> int:
    """Flushes stdout and stderr and returns the exit code."""
    try:
        with suppress(OSError):
            sys.stderr.flush()
        sys.stdout.flush()
        return code
    except OSError:
        # Python would flush again at exit and print its own error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or ExitCode.INVALID_INPUT
