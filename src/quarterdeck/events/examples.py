"""Examples of events for the OpenAPI document."""

from quarterdeck.core.example_ids import EVENING, RUN, SESSION
from quarterdeck.events.model import EventBody, EventPage, EventType

_ACCEPTED = EventBody(
    id=117,
    session_id=SESSION,
    run_id=RUN,
    type=EventType.INPUT_ACCEPTED,
    created_at=EVENING,
    data={"input_id": "0192f0d3-8c5e-7e02-9f71-1b5a3c7d9f09", "text": "Summarise the incidents of this week."},
)

EXAMPLES = (EventPage([_ACCEPTED], None),)
