"""What the harness starts in place of `qd`: the same command, with a clock that can be moved and, if one is named,
a planted bug."""

import os
import sys
from pathlib import Path

from tests.harness import clock, planted

CLOCK = "HARNESS_CLOCK"
BUG = "HARNESS_BUG"


def main() -> None:
    import quarterdeck.app

    if sys.argv[1] == "worker":
        import quarterdeck.worker.process  # noqa: F401 - so that the clock finds its modules
    clock.install(Path(os.environ[CLOCK]))
    if bug := os.environ.get(BUG):
        planted.BUGS[bug].plant()
    from quarterdeck.__main__ import main as qd

    qd()


if __name__ == "__main__":
    main()
