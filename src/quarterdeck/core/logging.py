"""Structured logs: one JSON object per line on stderr, with secrets redacted."""

import logging
import string
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from quarterdeck.core.secrets import redact

log = logging.getLogger("quarterdeck")

# Redacting a megabyte takes a quarter of a second. What is cut off may begin with the rest of a secret.
_MAX_CHARACTERS = 64 * 1024
_OF_SECRETS = string.ascii_letters + string.digits + "_+/="


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": _redacted(record.getMessage()),
        }
        line |= {name: _redacted(value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info and record.exc_info[1] is not None:
            # With the causes: the error that the caller saw is rarely the one that the operator needs.
            line["exception"] = _redacted("".join(traceback.format_exception(record.exc_info[1])))
        return msgspec.json.encode(line).decode()


def _redacted(value: object) -> object:
    """May be foreign text, such as the answer of a provider or the name of a tool."""
    if not isinstance(value, str):
        return value
    return redact(value if len(value) <= _MAX_CHARACTERS else f"{value[:_MAX_CHARACTERS].rstrip(_OF_SECRETS)}…")


def configure_logs(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False
    # The pool warns on every failed attempt while the database is down; failing requests are logged already.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def fields(**values: object) -> dict[str, object]:
    """Fields of a log line, for `extra=`."""
    return {"fields": values}
