"""What one API process is made of. Built by `app.py`, handed to every operation."""

import asyncio

from msgspec import Struct

from quarterdeck.access.callers import Callers
from quarterdeck.access.last_used import LastUsed
from quarterdeck.db.database import Database
from quarterdeck.events.feed import Feed
from quarterdeck.events.hints import Hints
from quarterdeck.events.shared_pages import SharedPages
from quarterdeck.rate_limits.allowance import RateLimits
from quarterdeck.runs.known_callers import KnownCallers
from quarterdeck.runs.submissions import Submissions
from quarterdeck.settings import Settings
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.pushes import Pushes
from quarterdeck.skills.uploads import Uploads
from quarterdeck.webhooks.sealing import Sealer


class Parts(Struct, frozen=True):
    settings: Settings
    database: Database
    callers: Callers
    last_used: LastUsed
    rate_limits: RateLimits
    submissions: Submissions
    known_callers: KnownCallers
    bundles: BundleStore
    hints: Hints
    feed: Feed
    shared_pages: SharedPages
    uploads: Uploads
    pushes: Pushes
    # Set when the process is told to stop: readers that do not read are not waited for any longer.
    stopping: asyncio.Event
    sealer: Sealer
