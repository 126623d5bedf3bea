"""Regular expressions from callers, matched with the engine of Rust: it needs linear time, and has no look-around and
no references. Imported only when a schema has a pattern."""

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema


class UnsupportedPattern(Exception):
    pass


class Pattern:
    def __init__(self, pattern: str) -> None:
        """Raises UnsupportedPattern."""
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        except SchemaError:
            raise UnsupportedPattern(pattern) from None

    def matches(self, text: str) -> bool:
        try:
            self._validator.validate_python(text)
        except ValidationError:
            return False
        return True
