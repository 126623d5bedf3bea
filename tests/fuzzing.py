"""How much generated input the tests try. `make test` tries a fifth of the usual number of cases, `make test-all` the
usual number, `make fuzz TIMES=20` twenty times as many."""

import os

TIMES = float(os.environ.get("QUARTERDECK_FUZZ_TIMES", "0.2"))
# A failure in `make test` must happen again in the next run. A longer search starts elsewhere each time.
REPEATED = TIMES <= 1


def cases(usual: int) -> int:
    return max(1, round(usual * TIMES))
