"""Reads a whole bundle: the archive, then its SKILL.md.

Takes up to a second of processor time, so it must not run on an event loop.
"""

from collections.abc import Mapping

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import SKILL_MD, read_archive
from quarterdeck.skills.frontmatter import read_frontmatter
from quarterdeck.skills.gunzip import Source
from quarterdeck.skills.model import Bundle, BundleError, Manifest, shown


def read_bundle(source: Source, limits: BundleSettings) -> Bundle:
    """Reads `source` from its current position to its end. Raises BundleError, and OSError if the source does."""
    archive = read_archive(source, limits)
    if archive.skill_md is None:
        raise missing_skill_md(archive.directories)
    return Bundle(
        frontmatter=read_frontmatter(archive.skill_md, limits),
        manifest=Manifest(archive.files, archive.unpacked_bytes, archive.archive_sha256),
        bundle_bytes=archive.archive_bytes,
    )


def missing_skill_md(directories: Mapping[str, bool]) -> BundleError:
    """The most likely mistake, judged by the paths in the archive."""
    for path in sorted(directories):
        if path == SKILL_MD or path.startswith(f"{SKILL_MD}/"):
            return BundleError("it is a directory: a file of this name is needed.", path=SKILL_MD)
        if path.lower() == SKILL_MD.lower():
            return BundleError(f"the file must be called {SKILL_MD}, in this spelling.", path=path)
        if path.endswith(f"/{SKILL_MD}"):
            folder = shown(path.removesuffix(f"/{SKILL_MD}"))
            advice = f'Pack the content of "{folder}", not the folder: tar -C <folder> -czf <archive> .'
            return BundleError(f"{SKILL_MD} must be at the root of the archive. {advice}", path=path)
    return BundleError(f"the archive has no {SKILL_MD} at its root.")
