"""Finds fields of a request body that its type does not have, also in objects inside it.

Not with `forbid_unknown_fields` at the types themselves: they are also read from the database, where during an upgrade
a newer release may have written fields that this release lacks. A copy of each type knows the names only, and skips
all values besides objects with named fields.
"""

from functools import cache
from types import GenericAlias
from typing import Any

import msgspec
from msgspec import inspect

from quarterdeck.http.body_errors import UNKNOWN_FIELD


def check_fields(raw: bytes, type_: type) -> None:
    """Raises msgspec.ValidationError for an unknown field. Values of a wrong type are left to the type itself."""
    try:
        _decoder(type_).decode(raw)
    except msgspec.ValidationError as fault:
        if str(fault).startswith(UNKNOWN_FIELD):
            raise


@cache
def _decoder(type_: type) -> msgspec.json.Decoder[Any]:
    names = _names(inspect.type_info(type_))
    return msgspec.json.Decoder(msgspec.Raw if names is None else names)


def _names(found: inspect.Type) -> Any:
    """The copy. None: a value of any shape."""
    match found:
        case inspect.Metadata():
            return _names(found.type)
        case inspect.UnionType():
            copies = [copy for copy in map(_names, found.types) if copy is not None]
            assert len(copies) <= 1, "objects and lists in a union cannot be told apart"
            return copies[0] if copies else None
        case inspect.StructType():
            return _struct_names(found)
        case inspect.DictType():
            values = _names(found.value_type)
            return None if values is None else GenericAlias(dict, (str, values))
        case inspect.ListType():
            items = _names(found.item_type)
            return None if items is None else GenericAlias(list, (items,))
    return None


def _struct_names(found: inspect.StructType) -> type[msgspec.Struct]:
    fields = []
    for field in found.fields:
        copy = _names(field.type)
        # Whether it is required is for the type itself to say.
        fields.append((field.name, msgspec.Raw if copy is None else copy | None, None))
    renamed = {field.name: field.encode_name for field in found.fields}
    return msgspec.defstruct(found.cls.__name__, fields, rename=renamed, kw_only=True, forbid_unknown_fields=True)
