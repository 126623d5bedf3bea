"""Flattens a JSON schema into table rows. Nested records become dotted names."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

Json = dict[str, Any]

# Enough for a page of records with nested records. Limits recursive schemas.
_LEVELS = 4


class Field(Struct, frozen=True):
    name: str
    type: str
    required: bool
    # Meaning, allowed values, limits.
    note: str


def resolve(document: Json, node: Json) -> Json:
    """Follow a `$ref` into this document; other nodes are returned as they are."""
    while "$ref" in node:
        target: Any = document
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


def fields(document: Json, schema: Json) -> list[Field]:
    return list(_rows(document, schema, "", _LEVELS))


def type_of(document: Json, schema: Json) -> str:
    schema = resolve(document, schema)
    if "anyOf" in schema:
        return " or ".join(type_of(document, option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {type_of(document, schema['items'])}"
    return " · ".join(part for part in (schema.get("type", "any JSON"), schema.get("format")) if part)


def note_of(document: Json, schema: Json) -> str:
    options = [schema, *schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    resolved = [resolve(document, option) for option in options]
    texts = [schema["description"]] if "description" in schema else []
    for option in resolved:
        texts += _limits(option)
    if schema.get("default") is not None:
        texts.append(f"Default `{schema['default']}`.")
    return " ".join(texts)


def _rows(document: Json, schema: Json, prefix: str, levels: int) -> Iterator[Field]:
    schema = resolve(document, schema)
    required = schema.get("required", ())
    for name, node in schema.get("properties", {}).items():
        yield Field(prefix + name, type_of(document, node), name in required, note_of(document, node))
        inner = resolve(document, node)
        below = f"{prefix}{name}."
        if inner.get("type") == "array":
            inner, below = resolve(document, inner["items"]), f"{prefix}{name}[]."
        if levels > 1:
            yield from _rows(document, inner, below, levels - 1)


def _limits(schema: Json) -> Iterator[str]:
    if "enum" in schema:
        values = [f"`{value}`" for value in schema["enum"]]
        yield f"Always {values[0]}." if len(values) == 1 else f"One of {', '.join(values)}."
    if span := _span(schema, "minimum", "maximum"):
        yield f"{span}."
    if span := _span(schema, "minLength", "maxLength"):
        yield f"{span} characters."
    if span := _span(schema, "minItems", "maxItems"):
        yield f"{span} entries."
    # A format already implies the pattern.
    if "pattern" in schema and "format" not in schema:
        yield f"Matches `{schema['pattern']}`."


def _span(schema: Json, least: str, most: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if high is None:
        return f"At least {low}"
    return f"At most {high}" if low is None else f"{low} to {high}"
