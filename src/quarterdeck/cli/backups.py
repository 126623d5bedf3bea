"""`qd admin backup` and `qd admin restore`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quarterdeck.backups.backup_file import open_backup
from quarterdeck.backups.model import BackupError
from quarterdeck.backups.restore_backup import Restore, check_backup
from quarterdeck.backups.write_backup import write_backup
from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.blobs.service import spool_folder
from quarterdeck.cli.database import app_role, owner_url
from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.output import progress_bar
from quarterdeck.core.secret_encryption import KEY_FILE

if TYPE_CHECKING:
    from quarterdeck.backups.model import Manifest
    from quarterdeck.core.settings import Settings


def back_up(settings: "Settings", file: Path, *, with_keys: bool) -> "Manifest":
    # Keys in a setting are kept by whoever sets it.
    with_keys = with_keys and settings.webhook.sealing_keys is None
    key_file = settings.data_dir / KEY_FILE if with_keys else None
    with _errors(), owner_url(settings) as url, progress_bar("Backing up") as progress:
        bundles = open_blob_store(settings.bundle.store_url, settings.data_dir, settings.bundle.fallback_store_url)
        return write_backup(url, file, bundles, key_file, progress)


def restore(settings: "Settings", file: Path) -> "Manifest":
    with _errors(), open_backup(file) as reader:
        with progress_bar("Checking") as progress:
            check_backup(reader, progress)
        with owner_url(settings, create=True) as url, progress_bar("Restoring") as progress:
            bundles = open_blob_store(settings.bundle.store_url, settings.data_dir, settings.bundle.fallback_store_url)
            restoring = Restore(reader, bundles, settings.data_dir / KEY_FILE, spool_folder(settings.data_dir))
            return restoring.run(url, app_role(settings), settings.audit, progress)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except BackupError as error:
        raise CliError(str(error), ExitCode.INVALID_INPUT) from error
