"""What a command reads from and writes to, made fit for wherever it was started: no terminal, another character set, a
full disk, a stream that is closed."""

import io
import os
import sys

from quarterdeck.cli.exit_codes import Exit


def prepare() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by whoever started us. The next file that is opened takes its number, and it had better be this.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream is not sys.stderr:
            # A character that the other side does not know must not end a command. The error output does so already.
            stream.reconfigure(errors="replace")


def finish(code: int) -> int:
    """The exit code, once all that was printed is out."""
    try:
        sys.stdout.flush()
        return code
    except OSError:
        # Python would try again when it ends, and tell of it in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or Exit.WRONG_INPUT
