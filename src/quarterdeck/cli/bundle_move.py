"""`qd admin move-bundles`."""

import asyncio

from quarterdeck.blobs.blob_store import BlobStore, open_blob_store, open_fallback_store
from quarterdeck.blobs.move import Move, Moved, are_same
from quarterdeck.blobs.service import spool_folder
from quarterdeck.cli.database import migrated
from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.output import progress_bar
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Database
from quarterdeck.skills.stored_blocks import find_stored_blocks


def move_bundles(settings: Settings, *, keep: bool, concurrency: int) -> Moved:
    bundle = settings.bundle
    if bundle.fallback_store_url is None:
        raise CliError(
            "Set QUARTERDECK_BUNDLE_FALLBACK_STORE_URL to the store to move from, for this command and the server.",
            ExitCode.INVALID_INPUT,
        )
    new = open_blob_store(bundle.store_url, settings.data_dir)
    old = open_fallback_store(bundle.fallback_store_url)
    with migrated(settings) as url:
        try:
            return asyncio.run(_move(settings, url, old, new, keep=keep, concurrency=concurrency))
        except ServiceError as fault:
            reason = str(fault.__cause__ or fault.message).partition("\n")[0]
            raise CliError(
                f"A bundle store or the database is unavailable. Run the command again to continue. {reason}",
                ExitCode.INVALID_INPUT,
            ) from fault


async def _move(settings: Settings, url: str, old: BlobStore, new: BlobStore, *, keep: bool, concurrency: int) -> Moved:
    spool = spool_folder(settings.data_dir)
    if await are_same(new, old, spool):
        raise CliError(
            "QUARTERDECK_BUNDLE_STORE_URL and QUARTERDECK_BUNDLE_FALLBACK_STORE_URL name the same store.",
            ExitCode.INVALID_INPUT,
        )
    database = Database(url, settings.database)
    await database.open()
    try:
        with progress_bar("Moving") as progress:
            return await Move(database, old, new, spool, keep=keep).run(find_stored_blocks, concurrency, progress)
    finally:
        await database.close()
