"""How a command for users comes about: of a function that takes a client and returns what the command prints.

The other parameters of the function are the arguments and options, as Typer reads them. One whose type is a `Struct`
stands for its fields. The command also has `--profile`, with which the client is opened, and `--json`. A function that
returns None prints by itself, and its command has no `--json`."""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, get_type_hints

import typer
from msgspec import Struct
from msgspec.structs import fields

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile
from quarterdeck.cli.output import Page, Result

CommandFunction = Callable[..., Result | Page[Any] | None]
Function = TypeVar("Function", bound=CommandFunction)


def command(app: typer.Typer, name: str | None = None) -> Callable[[Function], Function]:
    """Adds a command to a group. Its name is that of the function, unless another is given:

    @command(app)
    def show(client: Client, webhook: WebhookId) -> Result:
    """

    def add(function: Function) -> Function:
        app.command(name)(with_client(function))
        return function

    return add


def with_client(function: CommandFunction) -> Callable[..., None]:
    """The function that Typer calls. For commands without a group; the others use `command`."""
    signature = inspect.signature(function)
    _, *own = signature.parameters.values()
    structs = [one for one in own if _is_struct(one)]

    @wraps(function)
    def run(profile: str | None, as_json: bool = False, **given: Any) -> None:
        for one in structs:
            given[one.name] = one.annotation(**{name: given.pop(name) for name in one.annotation.__struct_fields__})
        with open_client(profile) as client:
            result = function(client, **given)
            if result is not None:
                result.print(as_json=as_json)

    options = [option for one in own for option in _options(one)]
    options.append(_option("profile", Profile, None))
    if signature.return_annotation is not None:
        options.append(_option("as_json", AsJson, False))
    # Typer reads the options from here.
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def _options(one: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not _is_struct(one):
        yield _option(one.name, one.annotation, one.default)
        return
    types = get_type_hints(one.annotation, include_extras=True)
    for field in fields(one.annotation):
        yield _option(field.name, types[field.name], field.default)


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_struct(one: inspect.Parameter) -> bool:
    return isinstance(one.annotation, type) and issubclass(one.annotation, Struct)
