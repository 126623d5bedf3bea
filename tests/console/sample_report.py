"""A run with a formatted answer for the sample workspace. The demo model cannot write one, so it is inserted."""

import json
from uuid import uuid4

from tests.world import World

_INSERT = """
INSERT INTO session_events (session_id, run_id, type, data)
SELECT %s, %s, entry->>'type', entry->'data' FROM jsonb_array_elements(%s::jsonb) AS entry
"""
_ANSWER = """The notes have **three** sections. Changes since 2.3:

| Area | Changes | Breaking |
|---|--:|--:|
| Import | 12 | 1 |
| Invoices | 7 | 0 |
| Permissions | 3 | 2 |

Check the list before you publish it:

```sh
# Commits since the last tag
git log --oneline "$(git describe --tags --abbrev=0)"..HEAD | wc -l
```
"""


async def add_report(world: World, session_id: str) -> None:
    entries = [
        ("input.accepted", {"input_id": "report", "text": "How many changes are there in each area?"}),
        ("run.started", {"attempt": 1}),
        ("input.consumed", {"input_id": "report", "step": 1}),
        ("message", {"role": "assistant", "text": _ANSWER}),
        ("run.succeeded", {}),
    ]
    rows = json.dumps([{"type": kind, "data": data} for kind, data in entries])
    await world.execute(_INSERT, session_id, str(uuid4()), rows)
