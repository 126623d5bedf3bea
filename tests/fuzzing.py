"""How long generated input is tried. `make test` takes the usual number of cases, `make fuzz TIMES=20` twenty times as
many, other ones each time."""

import os

TIMES = int(os.environ.get("QUARTERDECK_FUZZ_TIMES", "1"))
# A fault that `make test` finds is found again by the next run; a longer search begins elsewhere each time.
REPEATED = TIMES == 1


def cases(usual: int) -> int:
    return usual * TIMES
