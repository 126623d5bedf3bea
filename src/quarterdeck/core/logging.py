"""Structured logs: one JSON object a line on stderr, never a secret."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from quarterdeck.core.secrets import redact

log = logging.getLogger("quarterdeck")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": redact(record.getMessage()),
        }
        line |= {name: _without_secrets(value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info and record.exc_info[1] is not None:
            # The whole chain: what the caller was told is rarely what the operator needs.
            line["exception"] = redact("".join(traceback.format_exception(record.exc_info[1])))
        return msgspec.json.encode(line).decode()


def _without_secrets(value: object) -> object:
    """Words of others stand in fields too: what a provider answered, how a model calls a tool."""
    return redact(value) if isinstance(value, str) else value


def configure_logs(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False
    # A pool warns with every failed attempt while the database is away; the requests that need it say so already.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def fields(**values: object) -> dict[str, object]:
    """For `extra=`: what stands beside the message."""
    return {"fields": values}
