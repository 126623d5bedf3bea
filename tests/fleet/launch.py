"""The command that a fleet starts instead of `qd`: the same program with an adjustable clock and, if the environment
names one, a planted bug."""

import os
import sys
from pathlib import Path

from tests.fleet import clock
from tests.fleet.planted_bugs import BUGS
from tests.fleet.process import BUG_VARIABLE, CLOCK_VARIABLE


def main() -> None:
    import quarterdeck.app

    if sys.argv[1] == "worker":
        import quarterdeck.worker.process  # noqa: F401 - the clock is installed in loaded modules only
    clock.install(Path(os.environ[CLOCK_VARIABLE]))
    if bug := os.environ.get(BUG_VARIABLE):
        BUGS[bug].plant()
    from quarterdeck.__main__ import main as qd

    qd()


if __name__ == "__main__":
    main()
