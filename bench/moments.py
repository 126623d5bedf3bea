"""Times as a session's log tells them: PostgreSQL's clock alone, without the client's way to the server."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from bench.case import BenchError
from quarterdeck.events.model import EventBody, EventType


def moment(events: Sequence[EventBody], kind: EventType) -> datetime:
    found = [event.created_at for event in events if event.type == kind]
    if not found:
        raise BenchError(f"a log has no {kind}: {', '.join(event.type for event in events)}")
    return found[0]


def ms(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)


def consumed_after_ms(events: Iterable[EventBody], texts: set[str]) -> list[float]:
    """How long those inputs with these texts that a run has taken up had waited for it."""
    accepted: dict[str, datetime] = {}
    waited_ms: list[float] = []
    for event in events:
        if event.type == EventType.INPUT_ACCEPTED and event.data["text"] in texts:
            accepted[event.data["input_id"]] = event.created_at
        elif event.type == EventType.INPUT_CONSUMED and event.data["input_id"] in accepted:
            waited_ms.append(ms(event.created_at - accepted[event.data["input_id"]]))
    return waited_ms


def most_at_once(started: Iterable[datetime], ended: Iterable[datetime]) -> int:
    changes = sorted([(when, 1) for when in started] + [(when, -1) for when in ended])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
