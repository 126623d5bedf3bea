"""Writes the methods of the Python client from the route table: `make client`. What is written is read like any other
code, and a test fails when it is not what this would write."""

import datetime
import enum
import keyword
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.conversations.events import model as events
from quarterdeck.http.operation import Operation, Payload, Query

FOLDER = Path(__file__).parents[1] / "src" / "quarterdeck" / "client"
# What a client reads in another form than the server writes: types that may grow. By name, because importing the
# client would need the very files that are to be written.
_READ_AS = {events.EventPage: ("quarterdeck.client.model", "EventPage")}
_NOTE = "Written by codegen/client.py (`make client`) from the route table."
_LINE = 112
_OPTIONS = (("if_match", "IfMatch | None"), ("idempotency_key", "str | None"), ("workspace_id", "Id | None"))


class Parameter(Struct, frozen=True):
    name: str
    type: str
    # Source text; None: required.
    default: str | None = None
    # As the API spells it.
    wire_name: str = ""

    def written(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.default is None else f" = {self.default}")


class Names:
    """The types that the written text uses, by the modules that hold them."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str]] = set()

    def use(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name

    def of(self, type_: Any, *, given: bool = False) -> str:
        """Source text of a type; `given`: of an argument, which may be more than what the server answers."""
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self.of(arguments[0], given=given)
        if origin in (Union, UnionType):
            return _union(self.of(each, given=given) for each in _flat(arguments))
        if origin is Literal:
            self.use("typing", "Literal")
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin in (list, dict):
            return f"{origin.__name__}[{', '.join(self.of(each, given=given) for each in arguments)}]"
        if type_ in (None, NoneType):
            return "None"
        if type_ is UUID and given:
            return self.use("quarterdeck.client.requests", "Id")
        if type_ in (str, int, float, bool, dict, list):
            return str(type_.__name__)
        if type_ is Any:
            return self.use("typing", "Any")
        if type_ is UnsetType:
            return self.use("msgspec", "UnsetType")
        assert isinstance(type_, type), f"no source text for {type_}"
        return self.use(type_.__module__, type_.__name__)

    def lines(self) -> list[str]:
        return [f"from {module} import {name}" for module, name in sorted(self.imports)]


def _union(texts: Iterable[str]) -> str:
    """Each once, None at the end."""
    return " | ".join(sorted(dict.fromkeys(texts), key=lambda text: text == "None"))


def _flat(arguments: Iterable[Any]) -> Iterable[Any]:
    """`Annotated[str | None, …] | UnsetType` as its parts."""
    for each in arguments:
        inner = get_args(each)[0] if get_origin(each) is Annotated else each
        if get_origin(inner) in (Union, UnionType):
            yield from _flat(get_args(inner))
        else:
            yield inner


class Method:
    """One operation as source text."""

    def __init__(self, operation: Operation, names: Names, *, is_async: bool) -> None:
        self.operation = operation
        self.names = names
        self.is_async = is_async
        self.is_upload = operation.payload is Payload.GZIP
        self.is_download = getattr(operation, "download", None) is not None
        self.constant = operation.name.upper()
        names.use("quarterdeck.client.operations", self.constant)
        self.ids = [Parameter(name, names.use("quarterdeck.client.requests", "Id")) for name in operation.path_ids]
        self.ids += [Parameter(name, "int") for name in operation.path_numbers]
        # As they stand in the path, whatever their kind.
        self.ids.sort(key=lambda each: operation.path.index(f"{{{each.name}}}"))
        self.fixed, self.fields = self._fields()
        self.queries = [self._query(query) for query in operation.queries]
        self.paging = self._paging()

    @property
    def returns(self) -> str:
        if self.is_download:
            return "int"
        success = self.operation.success_type
        return self.names.use(*_READ_AS[success]) if success in _READ_AS else self.names.of(success)

    def _fields(self) -> tuple[dict[str, str], list[Parameter]]:
        """What is always sent as it is, and what the caller says."""
        fixed: dict[str, str] = {}
        found: list[Parameter] = []
        if isinstance(self.operation.payload, Payload):
            return fixed, found
        hints = typing.get_type_hints(self.operation.payload, include_extras=True)
        for field in msgspec.structs.fields(self.operation.payload):
            type_ = hints[field.name]
            values = get_args(type_) if get_origin(type_) is Literal else ()
            if len(values) == 1 and field.default is NODEFAULT:
                fixed[field.encode_name] = repr(values[0])
                continue
            written, default = self.names.of(type_, given=True), _default(field)
            if default == "UNSET":
                self.names.use("msgspec", "UNSET")
                unset = self.names.use("msgspec", "UnsetType")
                written = _union([*written.split(" | "), unset])
            found.append(Parameter(_safe(field.name), written, default, field.encode_name))
        return fixed, found

    def _query(self, query: Query) -> Parameter:
        written = self._query_type(query.schema)
        if query.required:
            return Parameter(_safe(query.name), written, None, query.name)
        return Parameter(_safe(query.name), f"{written} | None", "None", query.name)

    def _query_type(self, schema: dict[str, Any]) -> str:
        if "enum" in schema:
            self.names.use("typing", "Literal")
            return f"Literal[{', '.join(repr(str(value)) for value in schema['enum'])}]"
        if schema["type"] == "string" and schema.get("format") == "uuid":
            return self.names.use("quarterdeck.client.requests", "Id")
        if schema["type"] == "string" and schema.get("format") == "date-time":
            return self.names.use("datetime", "datetime")
        return {"boolean": "bool", "integer": "int", "string": "str"}[schema["type"]]

    def _paging(self) -> list[Parameter]:
        limit = Parameter("limit", "int | None", "None", "limit")
        if self.operation.log:
            return [limit, Parameter("after", "int | None", "None", "after")]
        if not self.operation.paged:
            return []
        after = Parameter("after", f"{self.names.use('quarterdeck.client.requests', 'Id')} | None", "None", "after")
        return [limit, after, self._order()]

    def _order(self) -> Parameter:
        self.names.use("typing", "Literal")
        return Parameter("order", "Literal['asc', 'desc'] | None", "None", "order")

    def options(self) -> list[Parameter]:
        wanted = {
            "if_match": self.operation.conditional,
            "idempotency_key": self.operation.idempotent,
            "workspace_id": True,
        }
        for name, type_ in _OPTIONS:
            if wanted[name] and name != "idempotency_key":
                self.names.use("quarterdeck.client.requests", type_.partition(" ")[0])
        return [Parameter(name, type_, "None") for name, type_ in _OPTIONS if wanted[name]]

    def _transfer(self) -> tuple[list[Parameter], list[Parameter]]:
        """What an upload or a download takes beside the rest: by position, by name."""
        if not self.is_upload and not self.is_download:
            return [], []
        progress = self.names.use("quarterdeck.client.transfers", "Progress")
        kind = self.names.use("quarterdeck.client.transfers", "Source" if self.is_upload else "Sink")
        return [Parameter("archive" if self.is_upload else "to", kind)], [
            Parameter("progress", f"{progress} | None", "None")
        ]

    def text(self) -> str:
        positional, named = self._transfer()
        asked = sorted([*self.fields, *self.queries], key=lambda each: each.default is not None)
        keywords = [*asked, *self.paging, *named, *self.options()]
        all_names = [each.name for each in (*self.ids, *positional, *keywords)]
        assert len(set(all_names)) == len(all_names), f"{self.operation.name}: one name for two parameters"
        begin = f"{'async ' if self.is_async else ''}def {self.operation.name}"
        words = _docstring(f"{self.operation.summary}.", self.operation.description)
        return self._definition(begin, [*self.ids, *positional], keywords, self.returns, words, self._call())

    def _definition(
        self, begin: str, positional: list[Parameter], keywords: list[Parameter], returns: str, words: str, body: str
    ) -> str:
        parameters = ["self", *(each.written() for each in positional), "*", *(each.written() for each in keywords)]
        return f"    {begin}({', '.join(parameters)}) -> {returns}:\n{words}\n        return {body}\n"

    def _call(self) -> str:
        wait = "await " if self.is_async else ""
        path = _dict((each.name, each.name) for each in self.ids)
        query = _dict((each.wire_name, each.name) for each in (*self.queries, *self.paging))
        options = [f"{each.name}={each.name}" for each in self.options()]
        if self.is_download:
            arguments = [self.constant, path, query, "to", "progress", *options]
            return f"{wait}self._download({', '.join(arguments)})"
        kind = "type(None)" if self.returns == "None" else self.returns
        if self.is_upload:
            arguments = [self.constant, kind, path, query, "archive", "progress", *options]
            return f"{wait}self._upload({', '.join(arguments)})"
        body = []
        if not isinstance(self.operation.payload, Payload):
            body = [_dict([*self.fixed.items(), *((each.wire_name, each.name) for each in self.fields)])]
        return f"{wait}self._call({', '.join([self.constant, kind, path, query, *body, *options])})"

    def iterator(self) -> str:
        """`list_…` has an `iter_…` beside it, which walks all pages."""
        assert self.operation.name.startswith("list_"), "a paged operation is a list"
        items = typing.get_type_hints(self.operation.success_type)["items"]
        item = self.names.of(get_args(items)[0])
        kind = self.names.use("collections.abc", "AsyncIterator" if self.is_async else "Iterator")
        walk = self.names.use("quarterdeck.client.paging", "walk_async" if self.is_async else "walk")
        keywords = [*self.queries, self._order(), Parameter("page_size", "int | None", "None"), *self.options()]
        passed = [each.name for each in self.ids]
        passed += [f"{each.name}={each.name}" for each in (*self.queries, *self.options())]
        passed += ["limit=page_size", "after=after", "order=order"]
        body = f"{walk}(lambda after: self.{self.operation.name}({', '.join(passed)}))"
        begin = f"def iter_{self.operation.name.removeprefix('list_')}"
        words = _docstring(f"All that `{self.operation.name}` lists, each page fetched when it is needed.", "")
        keywords.sort(key=lambda each: each.default is not None)
        return self._definition(begin, self.ids, keywords, f"{kind}[{item}]", words, body)


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default_factory is not NODEFAULT or field.default is UNSET:
        return "UNSET"
    if field.default is NODEFAULT:
        return None
    assert field.default is None or isinstance(field.default, (bool, int, str)), f"no source text for {field.default}"
    assert not isinstance(field.default, (enum.Enum, datetime.datetime))
    return repr(field.default)


def _safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _dict(items: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in items) + "}"


def _docstring(summary: str, description: str) -> str:
    if not description:
        return f'        """{summary}"""'
    words = textwrap.indent(textwrap.fill(description, _LINE, break_long_words=False), " " * 8)
    return f'        """{summary}\n\n{words}\n        """'


def _shown_once(operation: Operation) -> str | None:
    """The field of an answer that may be missing is the one that is shown once."""
    if operation.success_type is None or not operation.idempotent:
        return None
    found = [field.name for field in msgspec.structs.fields(operation.success_type) if field.default is UNSET]
    assert len(found) <= 1, f"{operation.name} shows two things once"
    return found[0] if found else None


def operations_text() -> str:
    lines = [f'"""The operations of the API. {_NOTE}"""', "", "from quarterdeck.client.requests import Operation", ""]
    for operation in OPERATIONS:
        arguments = [repr(operation.name), repr(operation.method), repr(operation.path)]
        arguments += ["idempotent=True"] if operation.idempotent else []
        shown_once = _shown_once(operation)
        arguments += [f"shown_once={shown_once!r}"] if shown_once else []
        lines.append(f"{operation.name.upper()} = Operation({', '.join(arguments)})")
    return "\n".join(lines) + "\n"


def methods_text(*, is_async: bool) -> str:
    names = Names()
    prefix, module = ("Async", "async_connection") if is_async else ("", "connection")
    base = names.use(f"quarterdeck.client.{module}", f"{prefix}Connection")
    written = []
    for operation in OPERATIONS:
        method = Method(operation, names, is_async=is_async)
        written.append(method.text())
        if operation.paged:
            written.append(method.iterator())
    head = [f'"""A method for each operation of the API. {_NOTE}"""', "", *names.lines(), "", ""]
    return "\n".join([*head, f"class {prefix}Methods({base}):", "\n".join(written)])


def formatted(text: str) -> str:
    # The name tells ruff which settings apply.
    from_text = ["--quiet", "--no-cache", "--stdin-filename", str(FOLDER / "methods.py"), "-"]
    for command in (["check", "--fix", "--select", "I"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, *from_text]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def current() -> dict[Path, str]:
    """Every file as it should be."""
    return {
        FOLDER / "operations.py": formatted(operations_text()),
        FOLDER / "methods.py": formatted(methods_text(is_async=False)),
        FOLDER / "async_methods.py": formatted(methods_text(is_async=True)),
    }


if __name__ == "__main__":
    for file, text in current().items():
        file.write_text(text, "utf-8")
