"""Which paths a bundle may contain: those that unpack to the same files on Linux, macOS and Windows, without invisible
characters. Letters of different alphabets that look alike are allowed.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from unicodedata import normalize

from quarterdeck.core.settings import BundleSettings
from quarterdeck.core.text_types import HIDDEN
from quarterdeck.skills.model import BundleError, shown

ROOT = ""

_HERE = re.compile(r"(?:\./)*")
_DRIVE = re.compile(r"[A-Za-z]:")
# C0 and C1 control characters, and the marks that change the direction of text.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = re.compile(f"[{HIDDEN}]")
# Hidden characters that words and emoji need. Joiners stand between two characters that are not ASCII, as in Persian
# words and in emoji of several people; an emoji selector stands after such a character or in a keycap.
_JOINERS = re.compile(
    "(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])|(?<=[^\x00-\x7f])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)
_NOT_ON_WINDOWS = re.compile('[<>:"|?*]')
_STRIPPED_ON_WINDOWS = re.compile(r"[. ](?=/|\Z)")
# Devices, in every folder and with every extension. The digits include the superscripts of Latin-1.
_DEVICE = re.compile(
    r"(?:\A|/)((?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9\u00b9\u00b2\u00b3])) *(?=[./]|\Z)", re.IGNORECASE
)
_COMPONENT_FAULTS = {
    "": "the path has an empty component.",
    ".": 'the path has a "." component.',
    "..": 'the path has a ".." component.',
}


def bundle_path(name: bytes, *, directory: bool, limits: BundleSettings) -> str:
    """The path of an entry; ROOT for the packed directory itself.

    Only a leading `./` (written by `tar -C folder .`) and the final slash of a directory are removed. A name that needs
    more normalization is rejected, because readers normalize in different ways.
    """
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError("the path is not UTF-8.", path=name) from None
    path = _HERE.sub("", text, count=1)
    if directory and text and path in (ROOT, "."):
        return ROOT
    if not path:
        raise BundleError("the path is empty.", path=name)
    if path[0] == "/":
        raise BundleError("the path is absolute. Pack with tar -C <folder> -czf <archive> .", path=name)
    if directory:
        path = path.removesuffix("/")
    _check_text(path, limits)
    _check_components(path, limits)
    _check_portable(path)
    return path


def _check_text(path: str, limits: BundleSettings) -> None:
    if len(path.encode()) > limits.path_bytes:
        raise BundleError(f"the path is longer than {limits.path_bytes} bytes.", path=path)
    if invisible := _INVISIBLE.search(path):
        mark = f"U+{ord(invisible[0]):04X}"
        raise BundleError(f"the path has a control or text direction character, {mark}.", path=path)
    if "\\" in path:
        raise BundleError("the path has a backslash.", path=path)
    if _DRIVE.match(path):
        raise BundleError("the path starts with a drive letter.", path=path)


def _check_components(path: str, limits: BundleSettings) -> None:
    components = path.split("/")
    if len(components) > limits.path_levels:
        raise BundleError(f"the path is deeper than {limits.path_levels} levels.", path=path)
    for component in components:
        if component in _COMPONENT_FAULTS:
            raise BundleError(_COMPONENT_FAULTS[component], path=path)
    if max(map(len, path.encode().split(b"/"))) > limits.path_component_bytes:
        raise BundleError(f"a part of the path is longer than {limits.path_component_bytes} bytes.", path=path)


def _check_portable(path: str) -> None:
    if not path.isascii() and (hidden := _HIDDEN.search(_JOINERS.sub("", path))):
        raise BundleError(f"the path has an invisible character, U+{ord(hidden[0]):04X}.", path=path)
    if found := _NOT_ON_WINDOWS.search(path):
        raise BundleError(f"the path has a character that Windows does not allow: {found[0]}", path=path)
    if _STRIPPED_ON_WINDOWS.search(path):
        raise BundleError("a part of the path ends with a dot or a space, which Windows removes.", path=path)
    if device := _DEVICE.search(path):
        raise BundleError(f'"{shown(device[1])}" is the name of a device on Windows.', path=path)


def check_collisions(directories: Mapping[str, bool]) -> None:
    """Reject paths that cannot coexist. The mapping says of each path whether it is a directory.

    Parent directories count whether or not the archive lists them.
    """
    # With the lowest character as separator, the entries below a path sort directly after it. So comparing neighbours
    # is enough, and no tree is built (up to 32 levels for each of 10,000 entries).
    ordered = sorted((_folded(path).replace("/", "\0"), path) for path in directories)
    for (left, one), (right, other) in pairwise(ordered):
        if right.startswith(f"{left}\0") and not directories[one]:
            raise BundleError(f'"{shown(one)}" is a file, but this path needs a directory.', path=other)
        names = zip(left.split("\0"), right.split("\0"), one.split("/"), other.split("/"), strict=False)
        for folded, other_folded, component, other_component in names:
            if folded != other_folded:
                break
            if component != other_component:
                reason = f'the path and "{shown(one)}" differ only in case, Unicode form or invisible characters.'
                raise BundleError(reason, path=other)


def _folded(path: str) -> str:
    # Canonical caseless matching of Unicode. Case folding can undo the normal form, so it is applied twice.
    if path.isascii():
        return path.lower()
    return normalize("NFD", normalize("NFD", _JOINERS.sub("", path)).casefold())
