"""SHA-256 of what an archive holds, on a thread beside the one that inflates it: together they take as long as the
slower of the two. What is small is summed up where it is."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

# What is handed over at a time, and half of what is held.
_BATCH_BYTES = 512 * 1024


class Sums:
    def __init__(self) -> None:
        self._batch: list[tuple[_Hash, bytes]] = []
        self._batch_bytes = 0
        self._beside: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def add(self, sum_: "_Hash", piece: bytes) -> None:
        """`sum_` is right after `finish`."""
        self._batch.append((sum_, piece))
        self._batch_bytes += len(piece)
        if self._batch_bytes >= _BATCH_BYTES:
            self._wait()
            if self._beside is None:
                self._beside = ThreadPoolExecutor(1, thread_name_prefix="sums")
            self._under_way = self._beside.submit(_update, self._batch)
            self._batch, self._batch_bytes = [], 0

    def finish(self) -> None:
        self._wait()
        _update(self._batch)
        self._batch, self._batch_bytes = [], 0

    def __enter__(self) -> "Sums":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._beside is not None:
            self._beside.shutdown()

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None


def _update(batch: "list[tuple[_Hash, bytes]]") -> None:
    for sum_, piece in batch:
        sum_.update(piece)
