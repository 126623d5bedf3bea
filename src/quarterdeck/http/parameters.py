"""Fills the parameters of an operation's function from a request. The first error in path, query or headers is recorded
and not raised: see `http/request.py`."""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from inspect import isclass
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect
from starlette.responses import Response

from quarterdeck.core.call import Answer
from quarterdeck.core.ids import parse_id
from quarterdeck.core.operation import MAX_NUMBER, Operation, Query
from quarterdeck.core.pages import LenientPageRequest, LogPageRequest, PageRequest, PathPageRequest
from quarterdeck.core.text_types import Moment
from quarterdeck.http.request import DATE, DIGITS, Request

Result = Answer[Any] | Response | msgspec.Struct
Read = Callable[[Request], Any]


class Invalid(ValueError):
    """The text says what is wrong with a query parameter."""


def bind(operation: Operation, provided: Mapping[type, object]) -> Callable[[Request], Awaitable[Result]]:
    """The parameters that do not come from the request are `provided` by their types."""
    readers: dict[str, Read] = {}
    fixed: dict[str, object] = {}
    for name, type_ in operation.parameters.items():
        reader = _reader(operation, name, type_)
        if reader is not None:
            readers[name] = reader
        elif name != "call":
            fixed[name] = provided[type_]

    path_ids = operation.path_ids

    async def handle(request: Request) -> Result:
        values = {name: read(request) for name, read in readers.items()}
        resource = tuple(values[name] for name in path_ids)
        # Last: it contains the first error of the values above.
        call = await request.call(operation, resource)
        result: Result = await operation.function(**fixed, **values, call=call)
        return result

    return handle


def _reader(operation: Operation, name: str, type_: Any) -> Read | None:
    if name in operation.path_ids:
        return lambda request: request.path_id(name)
    if name in operation.path_numbers:
        return lambda request: request.path_number(name)
    if type_ is Request:
        return lambda request: request
    if type_ is PageRequest:
        return query_reader(PageRequest if operation.cursor_must_exist else LenientPageRequest)
    if type_ is LogPageRequest:
        return log_page_reader()
    is_query = isclass(type_) and issubclass(type_, (Query, PathPageRequest))
    return query_reader(type_) if is_query else None


def log_page_reader() -> Read:
    """`Last-Event-ID` wins over `after`: a browser that reconnects sends the header with the original URL."""
    read = query_reader(LogPageRequest)

    def read_page(request: Request) -> LogPageRequest:
        page: LogPageRequest = read(request)
        last_seen = request.last_event_id()
        return page if last_seen is None else msgspec.structs.replace(page, after=last_seen)

    return read_page


def query_reader(type_: type[msgspec.Struct]) -> Read:
    info = inspect.type_info(type_)
    assert isinstance(info, inspect.StructType)
    fields = [(field, _parser(field)) for field in info.fields]

    def read(request: Request) -> msgspec.Struct:
        values = {}
        for field, parse in fields:
            given = request.query_value(field.encode_name)
            try:
                if given is not None:
                    values[field.name] = parse(given)
                elif field.required:
                    raise Invalid("is required.")
            except Invalid as fault:
                request.remember(f"{field.encode_name} {fault}")
                # The operation is not carried out.
                values[field.name] = None
        query = type_(**values)
        wrong = query.fault() if isinstance(query, Query) and request.fault is None else None
        if wrong is not None:
            request.remember(wrong)
        return query

    return read


def _parser(field: inspect.Field) -> Callable[[str], Any]:
    type_ = field.type
    extra: dict[str, Any] = {}
    while isinstance(type_, inspect.Metadata | inspect.UnionType):
        if isinstance(type_, inspect.Metadata):
            extra |= type_.extra or {}
            type_ = type_.type
        else:
            type_ = next(each for each in type_.types if not isinstance(each, inspect.NoneType))
    match type_:
        case inspect.BoolType():
            return _flag
        case inspect.IntType(ge=least, le=most):
            lowest, highest = 1 if least is None else least, MAX_NUMBER if most is None else most
            return lambda given: _number(given, lowest, highest)
        case inspect.UUIDType():
            return _id
        case inspect.DateTimeType():
            return _moment
        case inspect.DateType():
            return lambda given: _day(given, round_up=extra.get("round_up", False))
        case inspect.EnumType(cls=options):
            return lambda given: _choice(given, options)
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            allowed, otherwise = (
                re.compile(pattern or ""),
                extra.get("otherwise", "has characters that are not allowed."),
            )
            return lambda given: _text(given, least or 0, most, allowed, otherwise)
    raise TypeError(f"{field.name}: no parser for {type_}")


def _flag(given: str) -> bool:
    if given not in ("true", "false"):
        raise Invalid("must be true or false.")
    return given == "true"


def _number(given: str, least: int, most: int) -> int:
    found = int(given) if DIGITS.fullmatch(given) else least - 1
    if not least <= found <= most:
        raise Invalid(f"must be a number from {least} to {most}.")
    return found


def _id(given: str) -> UUID:
    found = parse_id(given)
    if found is None:
        raise Invalid("is not a UUID.")
    return found


def _moment(given: str) -> datetime:
    try:
        return msgspec.convert(given, Moment)
    except msgspec.ValidationError:
        raise Invalid("must be a time with an offset, such as 2026-03-02T09:30:00Z.") from None


def _day(given: str, *, round_up: bool) -> date:
    """The day of a time in UTC, or with `round_up` the first day that does not begin before it."""
    try:
        if DATE.fullmatch(given):
            return date.fromisoformat(given)
        moment = msgspec.convert(given, Moment).astimezone(UTC)
        is_midnight = moment.time() == time.min
        return moment.date() + timedelta(days=1 if round_up and not is_midnight else 0)
    except (msgspec.ValidationError, ValueError, OverflowError):
        raise Invalid("must be a date such as 2026-03-02, or a time with an offset.") from None


def _choice(given: str, options: Any) -> StrEnum:
    try:
        found: StrEnum = options(given)
    except ValueError:
        raise Invalid(f"must be one of {', '.join(options)}.") from None
    return found


def _text(given: str, least: int, most: int | None, allowed: re.Pattern[str], otherwise: str) -> str:
    if "\0" in given:
        raise Invalid("must not contain U+0000.")
    if most is not None and len(given) > most:
        raise Invalid(f"must have at most {most} characters.")
    if len(given) < least:
        raise Invalid("must not be empty.")
    if allowed.search(given) is None:
        raise Invalid(otherwise)
    return given
