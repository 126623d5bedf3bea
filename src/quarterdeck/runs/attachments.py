"""The attachments of an input: what is asked of the database, and what callers are told about refused ones."""

from typing import Any

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import FileSettings, ModelSettings, SandboxSettings
from quarterdeck.models.attachments import description_of_taken, taken_by
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs.model import AttachmentRequest, InputEvent, Verdict


class AttachmentRules:
    def __init__(self, files: FileSettings, sandbox: SandboxSettings, models: ModelSettings) -> None:
        self._max_files = files.attachments
        self._sandbox = sandbox
        self._default_model = models.default
        # The patterns of LIKE.
        self._media_types = {
            provider: [pattern.replace("*", "%") for pattern in taken_by(provider)]
            for provider in ModelCatalog(models).providers()
        }

    def request(self, event: InputEvent) -> AttachmentRequest | None:
        """None: the input has no attachments."""
        if not event.attachments:
            return None
        if len(event.attachments) > self._max_files:
            raise errors.invalid(f"An input has at most {self._max_files} attachments.")
        if len(set(event.attachments)) < len(event.attachments):
            raise errors.invalid("attachments names a file twice.")
        return AttachmentRequest(
            file_ids=event.attachments,
            default_model=self._default_model,
            media_types=self._media_types,
            all_files_bytes=self._sandbox.all_files_bytes,
            files=self._sandbox.files,
        )


def refused(verdict: Verdict, detail: dict[str, Any]) -> ServiceError:
    match verdict:
        case Verdict.UNKNOWN_FILE:
            return errors.invalid(f"attachments: no file {detail['file_id']}, or this credential cannot see it.")
        case Verdict.UNSUPPORTED_FILE:
            return errors.invalid(
                f"attachments: {detail['model']} cannot read {detail['name']} ({detail['media_type']}). "
                f"It takes {description_of_taken(detail['model'])}. A session with a sandbox takes every file."
            )
    return errors.session_files_full()
