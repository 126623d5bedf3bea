"""What one worker process is made of."""

from msgspec import Struct

from quarterdeck.agents.models import Models
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Database
from quarterdeck.skills.bundle_store import BundleStore


class WorkerParts(Struct, frozen=True):
    settings: Settings
    database: Database
    bundles: BundleStore
    models: Models
