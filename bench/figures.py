"""What came out of a long run, with its targets. (What `make bench` measures has ceilings too: bench/outcome.py.)"""

from msgspec import Struct


class Figure(Struct, frozen=True):
    name: str
    value: float
    unit: str
    # At most this much. None: shown for comparison only.
    target: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.value <= self.target
