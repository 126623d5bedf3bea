"""The `qd` command."""

import sys

from quarterdeck.cli import streams
from quarterdeck.cli.main import run


def main() -> None:
    streams.prepare()
    sys.exit(streams.finish(run(sys.argv[1:])))


if __name__ == "__main__":
    main()
