"""Readable messages for request bodies of the wrong form: which values are allowed, and what a pattern means."""

import re
from typing import Any

import msgspec
from msgspec import inspect

_BAD_VALUE = re.compile(r"Invalid enum value '(.*)' - at `\$([^`]*)`", re.DOTALL)
_BAD_KEY = re.compile(r"Expected `str` matching regex .* - at `key` in `\$([^`]*)`", re.DOTALL)
UNKNOWN_FIELD = "Object contains unknown field"
_UNKNOWN_FIELD = re.compile(UNKNOWN_FIELD + r" `(.*?)`(?: - at `\$([^`]*)`)?", re.DOTALL)
_ANY_KEY = "[...]"
# Long values would push the allowed ones out of the message.
_VALUE_CHARACTERS = 100


def readable(fault: msgspec.DecodeError, raw: bytes, body_type: type) -> str:
    message = str(fault)
    if found := _BAD_VALUE.fullmatch(message):
        value, path = found.groups()
        if allowed := _values(_type_at(body_type, path)):
            place = _with_key(path, raw, value)
            return f"Invalid value '{value[:_VALUE_CHARACTERS]}' - at `${place}`. Allowed: {', '.join(allowed)}"
    if found := _BAD_KEY.fullmatch(message):
        path = found[1]
        expected = _type_at(body_type, path)
        key_type = expected.key_type if isinstance(expected, inspect.DictType) else None
        if isinstance(key_type, inspect.Metadata) and key_type.extra_json_schema:
            return f"Invalid key in `${path}`. A key is: {key_type.extra_json_schema['description']}"
    if found := _UNKNOWN_FIELD.fullmatch(message):
        name, path = found[1], found[2] or ""
        expected = _type_at(body_type, path)
        known = [field.encode_name for field in expected.fields] if isinstance(expected, inspect.StructType) else []
        place = f" - at `${path}`" if path else ""
        return f"{UNKNOWN_FIELD} `{name[:_VALUE_CHARACTERS]}`{place}. Known: {', '.join(known) or 'none'}"
    return message


def _values(expected: inspect.Type | None) -> list[str]:
    if isinstance(expected, inspect.EnumType):
        return [str(member.value) for member in expected.cls]
    return list(map(str, expected.values)) if isinstance(expected, inspect.LiteralType) else []


def _type_at(body_type: type, path: str) -> inspect.Type | None:
    """The type at a path such as `.skills[0].version`. None: there is none, or more than one."""
    current = _plain(inspect.type_info(body_type))
    for part in re.findall(r"\[[^\]]*\]|[^.\[]+", path):
        if isinstance(current, inspect.StructType):
            current = _plain(next((field.type for field in current.fields if field.encode_name == part), None))
        elif isinstance(current, inspect.DictType):
            current = _plain(current.value_type)
        elif isinstance(current, inspect.ListType):
            current = _plain(current.item_type)
        else:
            return None
    return current


def _plain(found: inspect.Type | None) -> inspect.Type | None:
    """Without descriptions and null."""
    while isinstance(found, inspect.Metadata):
        found = found.type
    if isinstance(found, inspect.UnionType):
        others = [one for one in found.types if not isinstance(one, inspect.NoneType)]
        return _plain(others[0]) if len(others) == 1 else None
    return found


def _with_key(path: str, raw: bytes, value: str) -> str:
    """msgspec does not name the key of an object without fixed names. Finds it by its value."""
    place = path.removesuffix(_ANY_KEY)
    if place == path or "[" in place:
        return path
    try:
        current: Any = msgspec.json.decode(raw)
        for name in place.split(".")[1:]:
            current = current[name]
        return f"{place}.{next(key for key, found in current.items() if found == value)}"
    except (msgspec.DecodeError, RecursionError, LookupError, StopIteration):
        return path
