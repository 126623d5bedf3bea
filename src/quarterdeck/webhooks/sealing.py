"""Signing secrets as the database holds them: encrypted with AES-256-GCM, bound to their webhook, under a key that is
kept elsewhere: in a setting, or in a file of the data folder. The first key seals, every key opens.
"""

import base64
import binascii
import hashlib
import os
import secrets
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quarterdeck.core.settings import WebhookSettings

KEY_FILE = "webhook.keys"
_KEY_BYTES = 32
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12


class SealingFault(Exception):
    """Says what is wrong with the keys, and never holds one."""


class Sealer:
    def __init__(self, settings: WebhookSettings, data_dir: Path) -> None:
        self._setting = settings.sealing_keys
        self._file = data_dir / KEY_FILE
        # By their ids, the one that seals first.
        self._keys: dict[bytes, AESGCM] = {}

    def seal(self, webhook_id: UUID, secret: bytes) -> bytes:
        if not self._keys:
            self._load(create=True)
        key_id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return key_id + nonce + key.encrypt(nonce, secret, webhook_id.bytes)

    def open(self, webhook_id: UUID, sealed: bytes) -> bytes:
        key_id, rest = sealed[:_KEY_ID_BYTES], sealed[_KEY_ID_BYTES:]
        if key_id not in self._keys:
            # Another process may have made the file, or its keeper added a key, after this one looked.
            self._load(create=False)
        key = self._keys.get(key_id)
        if key is None:
            raise SealingFault(f"the key {key_id.hex()}, which sealed this secret, is not among those of this process")
        try:
            return key.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], webhook_id.bytes)
        except InvalidTag:
            raise SealingFault(f"the secret was changed after it was sealed with the key {key_id.hex()}") from None

    def is_newest(self, sealed: bytes) -> bool:
        """Whether it was sealed with the key that seals now."""
        if not self._keys:
            self._load(create=False)
        return sealed[:_KEY_ID_BYTES] == next(iter(self._keys))

    def _load(self, *, create: bool) -> None:
        if self._setting is not None:
            texts, source = self._setting.split(","), "QUARTERDECK_WEBHOOK_SEALING_KEYS"
        else:
            texts, source = self._read_file(create=create).split(), str(self._file)
        keys = [_decoded(text.strip()) for text in texts]
        if not keys or None in keys:
            raise SealingFault(f"{source} must hold keys of {_KEY_BYTES} bytes in base64, and holds something else")
        self._keys = {hashlib.sha256(key).digest()[:_KEY_ID_BYTES]: AESGCM(key) for key in keys if key is not None}

    def _read_file(self, *, create: bool) -> str:
        try:
            if create and not self._file.exists():
                _create(self._file)
            return self._file.read_text("ascii")
        except (OSError, UnicodeDecodeError) as fault:
            raise SealingFault(f"{self._file} cannot be read or made ({type(fault).__name__})") from fault


def _decoded(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _create(file: Path) -> None:
    """Whole or not at all, and by one process only: whoever comes second finds the first one's key."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(base64.b64encode(secrets.token_bytes(_KEY_BYTES)) + b"\n")
            output.flush()
            os.fsync(output.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            return
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        draft.unlink()
