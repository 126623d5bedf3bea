"""Changes to typer for which it has no setting: values are converted without pydantic, and help shows no type names.

A release of typer without these methods still works, with its own conversion and help. Tests notice the difference.
"""

from typing import Any

from typer import BadParameter
from typer.core import TyperArgument, TyperOption

_typer_conversion = getattr(TyperOption, "get_runtime_param", None)


def apply() -> None:
    for parameter in (TyperArgument, TyperOption):
        _set(parameter, "get_runtime_param", _Conversion)
        # Such as [1<=x<=2147483647].
        _set(parameter, "_get_number_range_help_str", lambda self: None)
    _set(TyperArgument, "display_type_rich", lambda self, ctx: "")
    _set(TyperArgument, "get_usage_pieces", _usage)


def _set(type_: type, name: str, function: Any) -> None:
    setattr(type_, name, lambda self, *args, **kwargs: function(self, *args, **kwargs))


class _Conversion:
    """Converts the values of a parameter. Typer loads pydantic for every value, also for defaults, which takes longer
    than most commands. Here only text that has neither a parser nor the type `str` is left to typer."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        given = value if isinstance(value, (list, tuple)) else [value]
        if not any(isinstance(each, str) for each in given):
            return value
        parser = param.type_descriptor.parameter_info.parser
        if parser is None and param.type_descriptor.annotation not in (str, list[str]):
            assert _typer_conversion is not None
            try:
                return _typer_conversion(self._parameter).coerce(value, param=param, ctx=ctx)
            except BadParameter as error:
                raise BadParameter(_plain(error.message)) from None
        try:
            parsed = [parser(each) if parser else each for each in given]
        except ValueError as error:
            raise BadParameter(str(error)) from None
        return parsed if given is value else parsed[0]


def _plain(message: str) -> str:
    """Messages of pydantic without its own words and names of types."""
    plain = message.removeprefix("Value error, ").split(", unable to parse")[0].removesuffix(".")
    for theirs, ours in (
        ("Input should", "must"),
        ("a valid integer", "a whole number"),
        ("a valid number", "a number"),
    ):
        plain = plain.replace(theirs, ours)
    return plain


def _usage(argument: TyperArgument, ctx: object) -> list[str]:
    """`SESSION` or `[SESSION]`, instead of `{SESSION}` or `[[SESSION]]`."""
    name = argument.metavar or argument.name.upper()
    return [name if argument.required else f"[{name.strip('[]')}]"]
