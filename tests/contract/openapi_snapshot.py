"""The snapshot of the OpenAPI document. `make openapi` writes it; its diff is what changes for clients."""

import json
from pathlib import Path

from quarterdeck.api.openapi import openapi_document
from quarterdeck.api.routes import OPERATIONS

SNAPSHOT = Path(__file__).with_name("openapi.snapshot.json")


def current() -> str:
    # Sorted, so that the order in the code does not matter.
    return json.dumps(openapi_document(OPERATIONS), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(current(), "utf-8")
