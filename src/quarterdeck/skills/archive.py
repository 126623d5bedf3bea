"""Reads a bundle: a gzipped tar, once, front to back, and the SKILL.md in it. Writes no file; the caller may ask for
the content of some.

Not `tarfile`: it loops for ever on a negative size (CVE-2025-8194), accepts wrong checksums and duplicate paths, and
allocates as much memory as the archive asks for. Here every byte and entry is counted before it is used.
"""

import hashlib
from collections.abc import Callable, Mapping

from msgspec import Struct

from quarterdeck.blobs.model import Source
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills import tar
from quarterdeck.skills.frontmatter import read_frontmatter
from quarterdeck.skills.gunzip import Gunzip
from quarterdeck.skills.model import Bundle, BundleError, SkillFile, SkillManifest, shown
from quarterdeck.skills.paths import bundle_path, check_collisions, check_portable

SKILL_MD = "SKILL.md"

# Receives the content of one file, a piece at a time.
Take = Callable[[bytes], object]


class Archive(Struct, frozen=True):
    # Sorted by path. For UTF-8 that is the order of the bytes, too.
    files: list[SkillFile]
    # Every path that has an entry, and whether it is a directory.
    directories: dict[str, bool]
    skill_md: bytes | None
    unpacked_bytes: int
    archive_bytes: int
    archive_sha256: str


def read_bundle(source: Source, limits: BundleSettings) -> Bundle:
    """Reads the archive, then its SKILL.md, from the current position of `source` to its end. Raises BundleError, and
    OSError if the source does. Takes up to a second of processor time, so it must not run on an event loop."""
    archive = read_archive(source, limits)
    if archive.skill_md is None:
        raise missing_skill_md(archive.directories)
    return Bundle(
        frontmatter=read_frontmatter(archive.skill_md, limits),
        manifest=SkillManifest(archive.files, archive.unpacked_bytes, archive.archive_sha256),
        bundle_bytes=archive.archive_bytes,
    )


def missing_skill_md(directories: Mapping[str, bool]) -> BundleError:
    """The most likely mistake, judged by the paths in the archive."""
    for path in sorted(directories):
        if path == SKILL_MD or path.startswith(f"{SKILL_MD}/"):
            return BundleError("must be a file, not a directory.", path=SKILL_MD)
        if path.lower() == SKILL_MD.lower():
            return BundleError(f"rename the file to {SKILL_MD}, in upper and lower case as shown.", path=path)
        if path.endswith(f"/{SKILL_MD}"):
            folder = shown(path.removesuffix(f"/{SKILL_MD}"))
            advice = f'Pack the content of "{folder}", not the folder: tar -C <folder> -czf <archive> .'
            return BundleError(f"{SKILL_MD} must be at the root of the archive. {advice}", path=path)
    return BundleError(f"no {SKILL_MD} at the root of the archive.")


def read_archive(source: Source, limits: BundleSettings) -> Archive:
    skill_md = bytearray()
    walk = _TarWalk(Gunzip(source, limits), limits, {SKILL_MD: skill_md.extend}.get)
    while walk.next_entry():
        pass
    walk.finish()
    for path in walk.directories:
        check_portable(path)
    check_collisions(walk.directories)
    return Archive(
        files=sorted(walk.files, key=lambda file: file.path),
        directories=walk.directories,
        skill_md=bytes(skill_md) if SKILL_MD in walk.taken else None,
        unpacked_bytes=walk.unpacked_bytes,
        archive_bytes=walk.stream.archive_bytes,
        archive_sha256=walk.stream.archive_sha256(),
    )


def take_files(source: Source, limits: BundleSettings, takers: Mapping[str, Take]) -> dict[str, SkillFile]:
    """Passes each of these files to its taker. Returns those that were found, by path. Stops reading after the last."""
    walk = _TarWalk(Gunzip(source, limits), limits, takers.get)
    while len(walk.taken) < len(takers) and walk.next_entry():
        pass
    return walk.taken


def take_all(source: Source, limits: BundleSettings, take: Take) -> list[SkillFile]:
    """Passes the content of all files to `take`, one after the other. Returns the files in this order."""
    walk = _TarWalk(Gunzip(source, limits), limits, lambda _: take)
    while walk.next_entry():
        pass
    return walk.files


class _TarWalk:
    def __init__(self, stream: Gunzip, limits: BundleSettings, taker_of: Callable[[str], Take | None]) -> None:
        self.stream = stream
        self.files: list[SkillFile] = []
        self.directories: dict[str, bool] = {}
        # Files that were passed to their takers.
        self.taken: dict[str, SkillFile] = {}
        self.unpacked_bytes = 0
        self._taker_of = taker_of
        self._limits = limits
        self._entries = 0
        self._paths_bytes = 0

    def next_entry(self) -> bool:
        """Reads one file or directory with its extended header. False at the end of the archive."""
        extension: tar.Extension | None = None
        while (block := self.stream.take(tar.BLOCK_BYTES)) and block != tar.ZERO_BLOCK:
            if len(block) < tar.BLOCK_BYTES:
                raise BundleError("the tar archive is truncated: it ends inside a header.")
            header = tar.read_header(block)
            if header.type in (tar.FILE, tar.OLD_FILE, tar.DIRECTORY):
                self._count_entry()
                self._take_entry(header, extension or tar.Extension())
                return True
            # No writer sends two for one entry, and readers disagree about which of them counts.
            if extension is not None:
                raise BundleError("an extended header follows another one.", path=header.name)
            extension = self._take_extension(header)
        if extension is not None:
            raise BundleError("the tar archive is truncated: its last extended header describes no entry.")
        return False

    def finish(self) -> None:
        """Reads to the last byte: the gzip checksum follows the padding, and nothing may be hidden in the padding."""
        for piece in self.stream.pieces():
            if piece != bytes(len(piece)):
                raise BundleError("unexpected data after the end of the tar archive.")

    def _count_entry(self) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise BundleError(f"the archive has more than {self._limits.entries} entries.")

    def _take_extension(self, header: tar.Header) -> tar.Extension | None:
        if header.size > self._limits.extended_header_bytes:
            limit_bytes = self._limits.extended_header_bytes
            raise BundleError(f"the extended header is larger than {limit_bytes} bytes.", path=header.name)
        body = self.stream.take(header.size)
        if len(body) < header.size:
            raise _truncated(header.name)
        self._skip_padding(header.size, header.name)
        if header.type == tar.GLOBAL:
            # Belongs to no entry, so it is counted as one. Otherwise their number would have no limit.
            self._count_entry()
            tar.check_global(body, header)
            return None
        return tar.read_long_name(body) if header.type == tar.LONG_NAME else tar.read_extension(body, header)

    def _take_entry(self, header: tar.Header, extension: tar.Extension) -> None:
        name = header.name if extension.name is None else extension.name
        if extension.size not in (None, header.size):
            raise BundleError("the sizes in the PAX header and in the header differ.", path=name)
        if header.type == tar.OLD_FILE and header.name.endswith(b"/") != name.endswith(b"/"):
            # Readers disagree about which name counts. Some would read the content as further entries.
            raise BundleError("the header and the extended header disagree whether this is a directory.", path=name)
        # In the oldest format, a closing slash marks a directory. In later formats a file with such a name is refused:
        # its last component is empty, and readers disagree about it.
        directory = header.type == tar.DIRECTORY or (header.type == tar.OLD_FILE and name.endswith(b"/"))
        path = bundle_path(name, directory=directory, limits=self._limits)
        self._add_path(path, directory)
        if directory and header.size:
            raise BundleError("a directory cannot have content.", path=path)
        if not directory:
            self._take_file(path, header)

    def _add_path(self, path: str, directory: bool) -> None:
        if path in self.directories:
            raise BundleError("duplicate path.", path=path)
        self.directories[path] = directory
        self._paths_bytes += len(path.encode())
        if self._paths_bytes > self._limits.all_paths_bytes:
            raise BundleError(f"all paths together are longer than {self._limits.all_paths_bytes} bytes.")

    def _take_file(self, path: str, header: tar.Header) -> None:
        self.unpacked_bytes += header.size
        if self.unpacked_bytes > self._limits.unpacked_bytes:
            limit_bytes = self._limits.unpacked_bytes
            raise BundleError(f"the archive unpacks to more than {limit_bytes} bytes.", path=path)
        if path == SKILL_MD and header.size > self._limits.skill_md_bytes:
            raise BundleError(f"the file is larger than {self._limits.skill_md_bytes} bytes.", path=path)
        take = self._taker_of(path)
        sha256, left = hashlib.sha256(), header.size
        for piece in self.stream.pieces(header.size):
            sha256.update(piece)
            left -= len(piece)
            if take is not None:
                take(piece)
        if left:
            raise _truncated(path)
        self._skip_padding(header.size, path)
        file = SkillFile(path, header.size, sha256.hexdigest(), header.executable)
        self.files.append(file)
        if take is not None:
            self.taken[path] = file

    def _skip_padding(self, size: int, path: str | bytes) -> None:
        padding_bytes = -size % tar.BLOCK_BYTES
        if len(self.stream.take(padding_bytes)) < padding_bytes:
            raise _truncated(path)


def _truncated(path: str | bytes) -> BundleError:
    return BundleError("the tar archive is truncated: it ends inside this entry.", path=path)
