"""Answers that must be JSON of a certain form: docs/decisions/0076.

Schemas come from callers and are not trusted: they are checked and applied in a process with limits (0087).
"""

import re
from collections.abc import Hashable
from typing import Any

import msgspec

from quarterdeck.core import errors
from quarterdeck.core.helper_process import ProcessFailed, run_helper
from quarterdeck.core.logging import fields, log
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.models import schema_process
from quarterdeck.models.model import ModelFailure

_MAX_ANSWER_BYTES = 1024 * 1024
# Timeout of one checking process. Most take a tenth of a second. The process also limits its own processor time, which
# a busy machine does not prolong.
_SECONDS = 30.0
_WAIT_SECONDS = 10.0
# Processes at the same time, and those of one workspace.
_SLOTS = 4
_SLOTS_PER_WORKSPACE = 2
_FENCE = "```"
_FENCE_LINE = re.compile(r"```[a-zA-Z0-9]*[ \t]*\r?")

_INSTRUCTIONS = (
    "Your final answer must be one JSON value that matches the following JSON Schema, without any other text and "
    "without a code fence:\n"
)


class TooCostly(Exception):
    """The check needs more memory or time than it gets."""


class SchemaChecks:
    """One for each process of ours. `owner` is the workspace. Raises a ServiceError if there are too many checks at the
    time."""

    def __init__(self) -> None:
        self._slots = Slots(_SLOTS, _SLOTS_PER_WORKSPACE)

    async def fault(self, owner: Hashable, schema: dict[str, Any]) -> str | None:
        """Why the schema is invalid. None: it is not. Raises TooCostly."""
        try:
            await self._run(owner, {"schema": schema})
        except ProcessFailed as failed:
            if failed.exit_code != schema_process.INVALID_SCHEMA:
                raise
            return failed.output.decode()
        return None

    async def mismatch(self, owner: Hashable, schema: dict[str, Any], text: str) -> str | None:
        """Why the text is not JSON that matches the schema, in one sentence. None: it is. Raises ModelFailure if that
        cannot be told."""
        try:
            found = await self._run(owner, {"schema": schema, "text": text})
        except TooCostly:
            raise ModelFailure("output_schema cannot be applied: checking this answer takes too long.") from None
        except ProcessFailed as failed:
            if failed.exit_code != schema_process.INVALID_SCHEMA:
                raise
            raise ModelFailure(f"output_schema cannot be applied: {failed.output.decode()}") from None
        return found.decode() or None

    async def arguments_mismatch(
        self, owner: Hashable, schema: dict[str, Any], arguments: dict[str, Any]
    ) -> str | None:
        """Why the arguments do not match the schema of their tool, in one sentence. None: they do, or it cannot be
        told: the schemas of tools are not checked when they are stored."""
        try:
            return await self.mismatch(owner, schema, msgspec.json.encode(arguments).decode())
        except (ModelFailure, ProcessFailed) as fault:
            log.info("the schema of a tool cannot be applied", extra=fields(reason=str(fault)))
            return None

    async def _run(self, owner: Hashable, order: dict[str, Any]) -> bytes:
        async with hold_slot(self._slots, owner, _WAIT_SECONDS, "checks of schemas"):
            try:
                return await run_helper(schema_process, order, _SECONDS)
            except TimeoutError:
                raise errors.unavailable("The schema could not be checked in time. Try again.") from None
            except ProcessFailed as failed:
                if failed.exit_code < 0 or failed.exit_code == schema_process.OUT_OF_MEMORY:
                    raise TooCostly from None
                raise


class OutputSchema:
    """The schema of a run."""

    def __init__(self, checks: SchemaChecks, owner: Hashable, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._checks = checks
        self._owner = owner

    def cleaned(self, answer: str) -> str:
        """The JSON, if the model has put it into a code fence."""
        text = answer.strip()
        first, _, rest = text.partition("\n")
        is_fenced = rest.endswith(_FENCE) and _FENCE_LINE.fullmatch(first) is not None
        return rest.removesuffix(_FENCE).strip() if is_fenced else text

    async def mismatch(self, answer: str) -> str | None:
        """Why the answer does not match, in one sentence. None: it does. Raises ModelFailure if that cannot be told."""
        if len(answer.encode("utf-8", "replace")) > _MAX_ANSWER_BYTES:
            return f"It is longer than {_MAX_ANSWER_BYTES} bytes."
        return await self._checks.mismatch(self._owner, self.schema, answer)


def output_instructions(schema: dict[str, Any]) -> str:
    """For models without structured output."""
    return _INSTRUCTIONS + msgspec.json.encode(schema).decode()
