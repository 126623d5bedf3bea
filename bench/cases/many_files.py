"""A session with as many files as it may have: all of them stored, one of them changed, all of them restored."""

from bench.case import Case, Round, Taken, at_most
from bench.sandboxes import call_ms, paused, without_worker, worker, worker_process
from bench.server import Server

_FILES = 20_000
_STORE_MS, _CHANGE_MS, _RESTORE_MS = 10_000, 500, 5_000
_CHANGES = 5


async def us(server: Server, one: Round) -> Taken:
    with worker_process(server) as first:
        async with server.caller() as caller:
            await caller.warm_up()
            [session_id] = await caller.new_sessions(1)
            store_ms = await call_ms(caller, session_id, _write(one))
            # The files that were just written are read once more by the next call.
            await call_ms(caller, session_id, "sleep 0.1; echo > 0/1")
            change_ms = max([await call_ms(caller, session_id, f"echo {number} > 0/1") for number in range(_CHANGES)])
        # Another worker has no folder of the session. The first is stopped, not ended: it would delete its folder, and
        # for minutes after that ext4 takes several times as long to make files.
        with paused(first):
            async with worker(server) as caller:
                restore_ms = await call_ms(caller, session_id, "test -s 0/1")
    shares = [store_ms / _STORE_MS, change_ms / _CHANGE_MS, restore_ms / _RESTORE_MS]
    notes = {"store, ms": store_ms, "change one, ms": change_ms, "restore, ms": restore_ms}
    return Taken(max(shares), notes=notes)


def _write(one: Round) -> str:
    """Different files of 2 KiB, in folders of a hundred. Without a process for each of them, which would take longer
    than storing it."""
    write = f"[ -d $((i / 100)) ] || mkdir $((i / 100)); printf '{one.number} %2000d' $i > $((i / 100))/$i"
    return f"for i in $(seq {one.rows(_FILES)}); do {write}; done"


CASE = Case(
    title="20,000 files: store in 10 s, change one in 0.5 s, restore in 5 s; the largest share of these",
    unit="",
    reach=at_most(1),
    stage=without_worker,
    us=us,
    rounds=3,
    warm_up=False,
)
