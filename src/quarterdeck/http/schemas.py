"""JSON schemas of parameters, as they stand in the OpenAPI document."""

from typing import Any

from quarterdeck.core.operation import MAX_NUMBER

Json = dict[str, Any]

# Either case is read; the server writes lower case.
UUID: Json = {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}

MOMENT: Json = {"type": "string", "format": "date-time"}
DATE: Json = {"type": "string", "format": "date"}
BINARY: Json = {"type": "string", "format": "binary"}

NUMBER: Json = {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_NUMBER}
