"""Reads a bundle: a gzipped tar, once, front to back, and the SKILL.md in it.

Not `tarfile`: it loops for ever on a negative size (CVE-2025-8194), accepts wrong checksums and duplicate paths, and
allocates as much memory as the archive asks for. Here every byte and entry is counted before it is used.
"""

import hashlib
from collections.abc import Mapping
from typing import IO

from quarterdeck.blobs.model import Source
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills import tar
from quarterdeck.skills.frontmatter import read_frontmatter
from quarterdeck.skills.gunzip import Gunzip
from quarterdeck.skills.model import Bundle, BundleError, SkillFile, SkillManifest, shown
from quarterdeck.skills.paths import bundle_path, check_collisions

SKILL_MD = "SKILL.md"


def read_bundle(source: Source, limits: BundleSettings, contents: IO[bytes] | None = None) -> Bundle:
    """Reads the archive from the current position of `source` to its end, then its SKILL.md. The contents of all files
    are written to `contents`, one after the other. Raises BundleError, and OSError if one of the two files does. Takes
    up to a second of processor time, so it must not run on an event loop."""
    walk = _TarWalk(Gunzip(source, limits), limits, contents)
    while walk.next_entry():
        pass
    walk.finish()
    check_collisions(walk.directories)
    if walk.skill_md is None:
        raise missing_skill_md(walk.directories)
    # Sorted by path. For UTF-8 that is the order of the bytes, too.
    files = sorted(walk.files, key=lambda file: file.path)
    return Bundle(
        frontmatter=read_frontmatter(bytes(walk.skill_md), limits),
        manifest=SkillManifest(files, walk.unpacked_bytes, walk.stream.archive_sha256()),
        bundle_bytes=walk.stream.archive_bytes,
        starts=walk.starts,
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


class _TarWalk:
    def __init__(self, stream: Gunzip, limits: BundleSettings, contents: IO[bytes] | None) -> None:
        self.stream = stream
        self.files: list[SkillFile] = []
        # Where the contents of the files start, by SHA-256.
        self.starts: dict[str, int] = {}
        # Every path that has an entry, and whether it is a directory.
        self.directories: dict[str, bool] = {}
        self.skill_md: bytearray | None = None
        self.unpacked_bytes = 0
        self._contents = contents
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
        start = self.unpacked_bytes
        self.unpacked_bytes += header.size
        if self.unpacked_bytes > self._limits.unpacked_bytes:
            limit_bytes = self._limits.unpacked_bytes
            raise BundleError(f"the archive unpacks to more than {limit_bytes} bytes.", path=path)
        if path == SKILL_MD:
            if header.size > self._limits.skill_md_bytes:
                raise BundleError(f"the file is larger than {self._limits.skill_md_bytes} bytes.", path=path)
            self.skill_md = bytearray()
        sha256, left = hashlib.sha256(), header.size
        for piece in self.stream.pieces(header.size):
            sha256.update(piece)
            left -= len(piece)
            if self._contents is not None:
                self._contents.write(piece)
            if self.skill_md is not None and path == SKILL_MD:
                self.skill_md += piece
        if left:
            raise _truncated(path)
        self._skip_padding(header.size, path)
        self.files.append(SkillFile(path, header.size, sha256.hexdigest(), header.executable))
        self.starts.setdefault(sha256.hexdigest(), start)

    def _skip_padding(self, size: int, path: str | bytes) -> None:
        padding_bytes = -size % tar.BLOCK_BYTES
        if len(self.stream.take(padding_bytes)) < padding_bytes:
            raise _truncated(path)


def _truncated(path: str | bytes) -> BundleError:
    return BundleError("the tar archive is truncated: it ends inside this entry.", path=path)
