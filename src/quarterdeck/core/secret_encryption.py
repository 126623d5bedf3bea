"""Encryption of secrets in the database: signing secrets of webhooks, and credentials. AES-256-GCM, with the id of the
webhook or credential as associated data. The keys are in a setting or in a file of the data folder, not in the
database. The first key encrypts; every key decrypts.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quarterdeck.core.settings import EncryptionSettings

KEY_FILE = "encryption.keys"
_KEY_BYTES = 32
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12


class EncryptionKeyError(Exception):
    """The keys cannot be used. The message never contains a key."""


class SecretCipher:
    def __init__(self, settings: EncryptionSettings, data_dir: Path) -> None:
        self._setting = settings.keys
        self._file = data_dir / KEY_FILE
        # By key id. The first one encrypts.
        self._keys: dict[bytes, AESGCM] = {}
        self._digest_key = b""

    def encrypt(self, owner_id: UUID, secret: bytes) -> bytes:
        if not self._keys:
            self._load(create=True)
        key_id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return key_id + nonce + key.encrypt(nonce, secret, owner_id.bytes)

    def decrypt(self, owner_id: UUID, encrypted: bytes) -> bytes:
        key_id, rest = encrypted[:_KEY_ID_BYTES], encrypted[_KEY_ID_BYTES:]
        if key_id not in self._keys:
            # Another process may have created the file, or the operator added a key, since it was loaded.
            self._load(create=False)
        key = self._keys.get(key_id)
        if key is None:
            raise EncryptionKeyError(f"the key {key_id.hex()}, which encrypted this secret, is missing")
        try:
            return key.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], owner_id.bytes)
        except InvalidTag:
            raise EncryptionKeyError(
                f"the secret was changed after it was encrypted with the key {key_id.hex()}"
            ) from None

    def digest(self, secret: str) -> str:
        """To recognise the same secret again. Without the key, not even a weak secret can be guessed from it."""
        if not self._keys:
            self._load(create=True)
        return hmac.new(self._digest_key, secret.encode(), hashlib.sha256).hexdigest()

    def is_current(self, encrypted: bytes) -> bool:
        """Whether the first key encrypted it."""
        if not self._keys:
            self._load(create=False)
        return encrypted[:_KEY_ID_BYTES] == next(iter(self._keys))

    def _load(self, *, create: bool) -> None:
        if self._setting is not None:
            texts, source = self._setting.split(","), "QUARTERDECK_ENCRYPTION_KEYS"
        else:
            texts, source = self._read_file(create=create).split(), str(self._file)
        decoded = [_decoded(text.strip()) for text in texts]
        keys = [key for key in decoded if key is not None]
        if not keys or len(keys) < len(decoded):
            raise EncryptionKeyError(f"{source} must contain base64-encoded keys of {_KEY_BYTES} bytes")
        self._keys = {hashlib.sha256(key).digest()[:_KEY_ID_BYTES]: AESGCM(key) for key in keys}
        self._digest_key = hmac.new(keys[0], b"digest", hashlib.sha256).digest()

    def _read_file(self, *, create: bool) -> str:
        try:
            if create and not self._file.exists():
                _create(self._file)
            return self._file.read_text("ascii")
        except (OSError, UnicodeDecodeError) as fault:
            raise EncryptionKeyError(f"{self._file} cannot be read or created ({type(fault).__name__})") from fault


def _decoded(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _create(file: Path) -> None:
    """Create the file atomically. If two processes try, the second one uses the key of the first."""
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
