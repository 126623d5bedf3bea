"""The snapshot of the OpenAPI document. `make openapi` writes it; its diff is what changes for clients."""

import json
from pathlib import Path
from typing import Any

from quarterdeck.api.openapi import openapi_document
from quarterdeck.api.routes import OPERATIONS

SNAPSHOT = Path(__file__).with_name("openapi.snapshot.json")


def current() -> str:
    # Sorted, so that the order in the code does not matter.
    return json.dumps(openapi_document(OPERATIONS), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Follows a `$ref` into the document. Other nodes are returned as they are."""
    while "$ref" in node:
        target: Any = document
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


if __name__ == "__main__":
    SNAPSHOT.write_text(current(), "utf-8")
