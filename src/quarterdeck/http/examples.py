"""One made-up value of each body, for the document."""

from typing import Any

from msgspec import Struct

from quarterdeck.api_keys import examples as api_keys
from quarterdeck.events import examples as events
from quarterdeck.runs import examples as runs
from quarterdeck.sessions import examples as sessions
from quarterdeck.skills import examples as skills
from quarterdeck.webhooks import examples as webhooks

_ROOMS = (api_keys, events, runs, sessions, skills, webhooks)
EXAMPLES: dict[Any, Struct] = {type(example): example for room in _ROOMS for example in room.EXAMPLES}
