"""Signatures in the Standard Webhooks format: HMAC-SHA256 over id, time and body, one for each valid secret."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from uuid import UUID

_MARKER = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


def encode_secret(secret: bytes) -> str:
    """The form that receivers configure."""
    return _MARKER + base64.b64encode(secret).decode()


def headers(message_id: UUID, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": str(message_id),
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
