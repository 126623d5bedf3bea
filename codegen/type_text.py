"""Types as source text, and `client/models.py`: the records that the API takes and answers with.

The client has copies of its own so that it imports nothing of the server. Types of `quarterdeck.core` are shared.
"""

import enum
import inspect
import json
import textwrap
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.changes.model import ObjectType
from quarterdeck.core.actors import Permission
from quarterdeck.core.operation import Operation, Payload
from quarterdeck.events.model import DeltaBody, EventBody, EventType, RetryBody

LINE_CHARACTERS = 112
# Public names of the client that differ from the server's.
_CLIENT_NAMES: dict[type, str] = {EventBody: "Event", DeltaBody: "Delta", RetryBody: "ModelRetry"}
# Read as text from responses: a newer server has values that this client does not know.
_OPEN_ENUMS = (ObjectType, Permission)


class TypeText:
    """Writes types as source text and collects the imports that the text needs."""

    def __init__(self, *, in_models: bool = False) -> None:
        self.imports: set[tuple[str, str]] = set()
        # Whether the text is that of models.py, which defines the records.
        self._in_models = in_models

    def use(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name

    def of(self, type_: Any, *, is_argument: bool = False) -> str:
        """`is_argument`: for a parameter, where an id may also be given as text."""
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self.of(arguments[0], is_argument=is_argument)
        if origin in (Union, UnionType):
            return union(self.of(each, is_argument=is_argument) for each in _flat(arguments))
        if origin is Literal:
            self.use("typing", "Literal")
            return f"Literal[{', '.join(map(value_text, arguments))}]"
        if origin in (list, dict):
            return f"{origin.__name__}[{', '.join(self.of(each, is_argument=is_argument) for each in arguments)}]"
        if type_ in (None, NoneType):
            return "None"
        if type_ is UUID and is_argument:
            return self.use("quarterdeck.client.requests", "Id")
        return self._of_class(type_)

    def _of_class(self, type_: Any) -> str:
        if type_ in (str, int, float, bool, dict, list):
            return str(type_.__name__)
        if type_ is Any:
            return self.use("typing", "Any")
        if type_ is UnsetType:
            return self.use("msgspec", "UnsetType")
        assert isinstance(type_, type), f"no source text for {type_}"
        if self._in_models and type_ in _OPEN_ENUMS:
            return "str"
        if not _is_record(type_):
            return self.use(type_.__module__, type_.__name__)
        if self._in_models:
            return client_name(type_)
        self.use("quarterdeck.client", "models")
        return f"models.{client_name(type_)}"

    def import_lines(self) -> list[str]:
        return [f"from {module} import {name}" for module, name in sorted(self.imports)]


def value_text(value: object) -> str:
    """`repr` with the quotation marks of the formatter."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def union(texts: Iterable[str]) -> str:
    """Each type once, None last."""
    return " | ".join(sorted(dict.fromkeys(texts), key=lambda text: text == "None"))


def _flat(arguments: Iterable[Any]) -> Iterable[Any]:
    """The parts of `Annotated[str | None, …] | UnsetType`."""
    for each in arguments:
        inner = get_args(each)[0] if get_origin(each) is Annotated else each
        if get_origin(inner) in (Union, UnionType):
            yield from _flat(get_args(inner))
        else:
            yield inner


def client_name(type_: type) -> str:
    return _CLIENT_NAMES.get(type_, type_.__name__)


def models_text(note: str) -> str:
    types = TypeText(in_models=True)
    types.use("msgspec", "Struct")
    records = _records()
    names = [client_name(record) for record in records]
    assert len(set(names)) == len(names), "two records have the same name"
    shared = [record for record in records if _is_shared(record)]
    pages = [_page_text(record, types) for record in records if _is_page(record)]
    classes = [_class_text(record, types) for record in records if not _is_shared(record) and not _is_page(record)]
    # The alias marks them as part of this module.
    exported = [f"from {record.__module__} import {record.__name__} as {record.__name__}" for record in shared]
    head = [f'"""The records that the API takes and answers with. {note}"""', "", *types.import_lines(), *exported]
    return "\n".join([*head, "", "", "\n\n\n".join(classes), "", "", *pages]) + "\n"


def body_fields(operation: Operation) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a JSON body."""
    return () if isinstance(operation.payload, Payload) else msgspec.structs.fields(operation.payload)


def _records() -> list[type]:
    """Every record that a method takes or returns, each after those that it refers to."""
    found: dict[type, None] = {}
    for operation in OPERATIONS:
        # The body itself is written as parameters.
        for field in body_fields(operation):
            _collect(field.type, found)
        _collect(operation.success_type, found)
    for extra in (DeltaBody, RetryBody, EventType):
        _collect(extra, found)
    return list(found)


def _collect(type_: Any, found: dict[type, None]) -> None:
    if not _is_record(type_):
        for argument in get_args(type_):
            _collect(argument, found)
        return
    if type_ in found:
        return
    if issubclass(type_, Struct):
        for base in type_.__bases__:
            _collect(base, found)
        for field in msgspec.structs.fields(type_):
            _collect(field.type, found)
    found[type_] = None


def _is_record(type_: Any) -> bool:
    return isinstance(type_, type) and type_ is not Struct and issubclass(type_, (Struct, enum.Enum))


def _is_shared(type_: type) -> bool:
    return type_.__module__.startswith("quarterdeck.core.")


def _is_page(record: type) -> bool:
    """Whether it is a page without any peculiarity, for which the client has a generic type."""
    return issubclass(record, Struct) and [
        (field.name, _description(field.type)) for field in msgspec.structs.fields(record)
    ] == [("items", None), ("next_cursor", None)]


def _page_text(record: type, types: TypeText) -> str:
    items, cursor = msgspec.structs.fields(record)
    (cursor_type,) = (each for each in get_args(cursor.type) if each is not NoneType)
    page = types.use("quarterdeck.client.calls", "Page")
    return f"{client_name(record)} = {page}[{types.of(get_args(items.type)[0])}, {types.of(cursor_type)}]"


def _class_text(record: Any, types: TypeText) -> str:
    if issubclass(record, enum.Enum):
        types.use("enum", "StrEnum")
        members = [f"    {member.name} = {str(member.value)!r}" for member in record]
        return "\n".join([f"class {client_name(record)}(StrEnum):", *_docstring(record), *members])
    (base,) = record.__bases__
    own = [field for field in msgspec.structs.fields(record) if field.name in record.__annotations__]
    parameters = inspect.signature(record).parameters
    is_keyword_only = any(parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY for field in own)
    options = "frozen=True, kw_only=True" if is_keyword_only else "frozen=True"
    head = f"class {client_name(record)}({'Struct' if base is Struct else client_name(base)}, {options}):"
    fields = [line for field in own for line in _field_lines(field, types)]
    return "\n".join([head, *_docstring(record), *fields])


def _docstring(record: type) -> list[str]:
    # `inspect.getdoc` would also find that of a base.
    text = record.__dict__.get("__doc__")
    return [f'    """{inspect.cleandoc(text)}"""', ""] if text else []


def _field_lines(field: msgspec.structs.FieldInfo, types: TypeText) -> list[str]:
    default = default_text(field)
    if isinstance(field.default, Struct):
        assert field.default == type(field.default)(), f"no source text for {field.default}"
        default = f"{client_name(type(field.default))}()"
    elif field.default_factory in (list, dict):
        # msgspec copies an empty list or dict for each record.
        default = repr(field.default_factory())
    elif default == "UNSET":
        types.use("msgspec", "UNSET")
    elif field.encode_name != field.name:
        assert default is None, f"no source text for {field.name}"
        default = f"{types.use('msgspec', 'field')}(name={field.encode_name!r})"
    lines = [f"    {field.name}: {types.of(field.type)}" + ("" if default is None else f" = {default}")]
    description = _description(field.type)
    if description is not None:
        text = textwrap.fill(f'"""{description}"""', LINE_CHARACTERS, break_long_words=False)
        lines.append(textwrap.indent(text, " " * 4))
    return lines


def _description(hint: Any) -> str | None:
    if get_origin(hint) is not Annotated:
        return None
    found = [meta.description for meta in hint.__metadata__ if isinstance(meta, Meta) and meta.description]
    return found[-1] if found else None


def default_text(field: msgspec.structs.FieldInfo) -> str | None:
    """None: the field is required. A list, record or choice that the server fills in by default is simply not sent."""
    if field.default_factory is not NODEFAULT or field.default is UNSET:
        return "UNSET"
    if isinstance(field.default, (enum.StrEnum, Struct)):
        return "UNSET"
    if field.default is NODEFAULT:
        return None
    assert field.default is None or type(field.default) in (bool, int, str), f"no source text for {field.default}"
    return value_text(field.default)
