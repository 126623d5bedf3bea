"""The `qd` command."""

import gc
import sys

from quarterdeck.cli import stdio
from quarterdeck.cli.main import run


def main() -> None:
    stdio.prepare()
    code = stdio.finish(run(sys.argv[1:]))
    # Everything is freed by the end of the process. Searching it for cycles first takes a fifth of a short command.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
