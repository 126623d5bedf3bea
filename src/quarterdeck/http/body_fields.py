"""Finds fields of a request body that its type does not have, also in objects inside it.

Not with `forbid_unknown_fields`: types of bodies are also read from the database, where during an upgrade a newer
release may have written fields that this release lacks.
"""

from functools import cache
from typing import Any

from msgspec import Struct, inspect

# Longer names would push the known ones out of the message.
_NAME_CHARACTERS = 100


class _Shape(Struct, frozen=True):
    """What is known about a value. Nothing is: any value."""

    # Of an object with named fields.
    fields: dict[str, "_Shape"] | None = None
    # Of the values of any other object, and of the items of a list.
    values: "_Shape | None" = None
    items: "_Shape | None" = None


def unknown_field(value: Any, type_: type) -> str | None:
    """What is wrong, for the caller. None: nothing."""
    return _unknown(value, _shape_of(type_), "")


def _unknown(value: Any, shape: _Shape, path: str) -> str | None:
    parts: list[tuple[Any, _Shape, str]] = []
    if isinstance(value, dict) and shape.fields is not None:
        for name, inner in value.items():
            if name not in shape.fields:
                place = f" - at `${path}`" if path else ""
                known = ", ".join(shape.fields) or "none"
                return f"Object contains unknown field `{name[:_NAME_CHARACTERS]}`{place}. Known: {known}"
            parts.append((inner, shape.fields[name], f"{path}.{name}"))
    elif isinstance(value, dict) and shape.values is not None:
        parts += [(inner, shape.values, f"{path}[...]") for inner in value.values()]
    elif isinstance(value, list) and shape.items is not None:
        parts += [(inner, shape.items, f"{path}[{at}]") for at, inner in enumerate(value)]
    return next(filter(None, (_unknown(*part) for part in parts)), None)


@cache
def _shape_of(type_: type) -> _Shape:
    return _shape(inspect.type_info(type_))


def _shape(found: inspect.Type) -> _Shape:
    match found:
        case inspect.Metadata():
            return _shape(found.type)
        case inspect.UnionType():
            # A value is an object or a list, and no union has two of either.
            shapes = [shape for shape in map(_shape, found.types) if shape != _Shape()]
            assert len(shapes) <= 1
            return shapes[0] if shapes else _Shape()
        case inspect.StructType():
            return _Shape(fields={field.encode_name: _shape(field.type) for field in found.fields})
        case inspect.DictType():
            values = _shape(found.value_type)
            return _Shape(values=None if values == _Shape() else values)
        case inspect.ListType():
            items = _shape(found.item_type)
            return _Shape(items=None if items == _Shape() else items)
    return _Shape()
