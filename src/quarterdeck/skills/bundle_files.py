"""Files out of stored archives. Reading blocks: all of this is for threads.

A stored archive was judged when it was pushed. If it cannot be read now, or does not hold what its manifest says, the
fault is here and not with the caller.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quarterdeck.core import errors
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import Take
from quarterdeck.skills.archive import read_file as read_from
from quarterdeck.skills.archive import take_files as take_from
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.model import Archive, BundleError, ManifestFile

# What was quick enough once must not fail because the processor is busier today.
_PATIENCE = 10


def read_file(
    bundles: BundleStore, archive: Archive, path: str, limits: BundleSettings, max_bytes: int
) -> bytes | None:
    """The first bytes of one file; None if there is no such file."""
    with bundles.open(archive.sha256, archive.generation) as source:
        return read_from(source, path, _patient(limits), max_bytes)


def take_files(
    bundles: BundleStore, archive: Archive, takers: Mapping[ManifestFile, Take], limits: BundleSettings
) -> None:
    """Hands over these files of the archive's manifest, whole."""
    by_path = {file.path: take for file, take in takers.items()}
    try:
        with bundles.open(archive.sha256, archive.generation) as source:
            found = take_from(source, _patient(limits), by_path)
        _check_same(found, takers)
    except (BundleError, FileNotFoundError) as fault:
        raise errors.internal() from fault


def _check_same(found: Mapping[str, ManifestFile], listed: Iterable[ManifestFile]) -> None:
    for file in listed:
        if found.get(file.path) != file:
            raise BundleError("the stored archive does not hold what its manifest says.", path=file.path)


def _patient(limits: BundleSettings) -> BundleSettings:
    return msgspec.structs.replace(limits, unpacking_seconds=limits.unpacking_seconds * _PATIENCE)
