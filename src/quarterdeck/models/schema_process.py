"""Checks a JSON Schema, or a JSON text against it. A program of its own, since both can take forever: it is killed
then.

Started by its path, with the folder of the packages as its argument. The order on stdin has `schema` and, unless only
the schema is to be checked, `text`. On stdout goes why the check fails, or nothing. Nothing is fetched.
"""

import json
import os
import resource
import sys
from typing import Any, NoReturn

# Exit codes. Limits of the kernel end the process by a signal.
INVALID_SCHEMA = 3
OUT_OF_MEMORY = 4

_MEMORY_BYTES = 512 * 1024 * 1024
_PROCESSOR_SECONDS = 2
# Largest compiled form of one pattern. Enough for `\w{180}`.
_PATTERN_BYTES = 1024 * 1024
_REASON_CHARACTERS = 500
_PATH_CHARACTERS = 200


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_SECONDS, _PROCESSOR_SECONDS))
    os.nice(5)
    sys.path.append(sys.argv[1])
    order = json.load(sys.stdin)
    # Its engine for patterns does not go back.
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    options = RegexOptions(_PATTERN_BYTES, _PATTERN_BYTES)
    try:
        validator = Draft202012Validator(order["schema"], pattern_options=options, validate_formats=False, offline=True)
    except ValidationError as fault:
        _say(fault)
        sys.exit(INVALID_SCHEMA)
    if "text" not in order:
        return
    try:
        value = json.loads(order["text"], parse_constant=_no_constant)
        error = next(validator.iter_errors(value), None)
    except (ValueError, RecursionError) as fault:
        # The validator refuses values that are nested too deeply.
        _write(f"It is not JSON: {_short(str(fault))}.")
    else:
        if error is not None:
            _say(error)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _say(error: Any) -> None:
    """The most helpful of several alternatives is the one that fails deepest in the value."""
    while alternatives := [one for branch in getattr(error.kind, "context", ()) for one in branch]:
        error = max(alternatives, key=lambda one: len(one.instance_path))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    _write(f"${path[:_PATH_CHARACTERS]}: {_short(error.message)}.")


def _short(text: str) -> str:
    line = " ".join(text[: 2 * _REASON_CHARACTERS].split()).rstrip(".")
    return line if len(line) <= _REASON_CHARACTERS else f"{line[:_REASON_CHARACTERS]}…"


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
