"""The import of jsonschema, at its first use: most processes never need it."""

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

# jsonschema imports it where it is installed, to check addresses. That takes seconds, in which the process would answer
# nobody, and schemas would be judged differently from one installation to the next.
_OPTIONAL = "rfc3987_syntax"


def schema_validator() -> "type[Draft202012Validator]":
    if "jsonschema" not in sys.modules:
        # None makes the import fail, which jsonschema expects.
        cast("dict[str, Any]", sys.modules).setdefault(_OPTIONAL, None)
    from jsonschema import Draft202012Validator

    return Draft202012Validator
