"""Regular expressions from callers, matched with the engine of Rust: it needs linear time, and has no look-around and
no references. Imported only when a schema has a pattern."""

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema


class UnsupportedPattern(Exception):
    pass


def is_supported(pattern: str) -> bool:
    try:
        _matcher(pattern)
    except UnsupportedPattern:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    """Raises UnsupportedPattern."""
    try:
        _matcher(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def _matcher(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        raise UnsupportedPattern(pattern) from None
