"""The `qd` command."""

import sys

from quarterdeck.cli import stdio
from quarterdeck.cli.main import run


def main() -> None:
    stdio.prepare()
    sys.exit(stdio.finish(run(sys.argv[1:])))


if __name__ == "__main__":
    main()
