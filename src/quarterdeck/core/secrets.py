"""Creates, recognises and redacts secrets. Only the SHA-256 of a secret is stored.

Format: `<marker>_<environment>_<40 random base62 characters><CRC32 of those in 6 base62 characters>`. The checksum lets
secret scanners, and this service, recognise a secret without the database.
"""

import hashlib
import re
import secrets
import zlib

from msgspec import Struct

from quarterdeck.core.actors import Credential, CredentialKind

# Markers of secrets that are no credentials: they are exchanged for one.
INVITATION = "qdi"
DEVICE_CODE = "qdc"

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARACTERS = 40
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHOWN_CHARACTERS = 8
_FORM = re.compile(r"(qd[a-z]?)_[a-z0-9]{1,16}_([0-9A-Za-z]{40})([0-9A-Za-z]{6})", re.ASCII)
# With its marker, or the random part alone: the marker is hidden in a path that was percent-encoded twice.
_SUSPECT = re.compile(r"(qd[a-z]?_)[0-9A-Za-z_]+|(whsec_)[0-9A-Za-z+/=]+|[0-9A-Za-z]{40,}", re.ASCII)
# A cheap test first: nearly every text has neither a marker nor 40 such characters in a row.
_LONG = re.compile(r"[0-9A-Za-z]{40}", re.ASCII)
_KINDS = {kind.value: kind for kind in CredentialKind}
_DIGEST = re.compile(r"[0-9a-f]+", re.ASCII)


class Secret(Struct, frozen=True):
    text: str
    hash: bytes
    prefix: str

    def __repr__(self) -> str:
        return f"Secret({self.prefix}…)"


def mint(kind: str, environment: str) -> Secret:
    random = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARACTERS))
    head = f"{kind}_{environment}_"
    text = head + random + _checksum(random)
    return Secret(text=text, hash=_hash(text), prefix=head + random[:_SHOWN_CHARACTERS])


def recognise(text: str) -> Credential | None:
    kind = _KINDS.get(text.partition("_")[0])
    secret_hash = None if kind is None else hash_of(kind, text)
    return None if kind is None or secret_hash is None else Credential(kind, secret_hash)


def hash_of(kind: str, text: str) -> bytes | None:
    """None: this is no secret of this kind."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != kind or _checksum(match[2]) != match[3]:
        return None
    return _hash(text)


def redact(text: str) -> str:
    """Replace everything that looks like a secret, except its marker. Hexadecimal digests stay: they name archives."""

    def redacted(found: re.Match[str]) -> str:
        return found[0] if _DIGEST.fullmatch(found[0]) else f"{found[1] or found[2] or ''}[redacted]"

    if "qd" not in text and "whsec_" not in text and not _LONG.search(text):
        return text
    return _SUSPECT.sub(redacted, text)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _checksum(random: str) -> str:
    """Six base62 digits, computed two at a time."""
    rest, last = divmod(zlib.crc32(random.encode()), len(_PAIRS))
    first, middle = divmod(rest, len(_PAIRS))
    return _PAIRS[first] + _PAIRS[middle] + _PAIRS[last]
