"""The `qd` command."""

import sys

from quarterdeck.cli.main import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
