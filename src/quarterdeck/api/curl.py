"""A curl command for each operation. The reader sets $QD_URL, $QD_KEY, $QD_WORKSPACE and the ids of the path."""

import re
import shlex
from typing import Any
from urllib.parse import urlencode

import msgspec

from quarterdeck.api.schema_fields import resolve
from quarterdeck.http.request import GZIP
from quarterdeck.http.responses import JSON
from quarterdeck.http.schemas import BINARY

Json = dict[str, Any]


def curl_command(document: Json, method: str, path: str, operation: Json) -> str:
    address = re.sub(r"{(\w+)}", lambda found: f"${found[1].upper()}", path) + _query(document, operation)
    content = operation.get("requestBody", {}).get("content", {})
    verb = "" if method == "get" or content else f" -X {method.upper()}"
    lines = [f'curl{verb} "$QD_URL{address}"', '-H "Authorization: Bearer $QD_KEY"']
    for parameter in (resolve(document, each) for each in operation["parameters"]):
        if parameter["name"] == "Service-Workspace" and parameter["required"]:
            lines.append('-H "Service-Workspace: $QD_WORKSPACE"')
        if parameter["name"] == "Idempotency-Key":
            lines.append('-H "Idempotency-Key: $(uuidgen)"')
    packing = ""
    if JSON in content:
        body = msgspec.json.format(msgspec.json.encode(content[JSON].get("example", {})), indent=2).decode()
        lines += [f'-H "Content-Type: {JSON}"', f"-d {shlex.quote(body)}"]
    elif GZIP in content:
        packing = "tar -C my-skill -czf - . |\n"
        lines += [f'-H "Content-Type: {GZIP}"', "--data-binary @-"]
    success = next(iter(operation["responses"].values()))
    if any(media["schema"] == BINARY for media in success.get("content", {}).values()):
        # Save under the file name from the server.
        lines.append("-OJ")
    return packing + " \\\n  ".join(lines)


def _query(document: Json, operation: Json) -> str:
    """The required query parameters with their example values."""
    parameters = (resolve(document, each) for each in operation["parameters"])
    given = {each["name"]: each["example"] for each in parameters if each["in"] == "query" and each["required"]}
    return f"?{urlencode(given)}" if given else ""
