"""How long data is kept."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

KeepDays = Annotated[int, Meta(ge=1, le=3650)]
# At least the seven days that the interface promises.
ReceiptDays = Annotated[int, Meta(ge=7, le=3650)]


class RetentionDays(Struct, frozen=True):
    """Days after which data is deleted, by kind of data."""

    run_days: Annotated[int | None, Meta(description="Runs, after they ended, with their events.")] = None
    event_days: Annotated[
        int | None, Meta(description="Events and answered actions of a run, after the run ended. Its record stays.")
    ] = None
    file_days: Annotated[
        int | None, Meta(description="Uploaded files, and the files of a session in which no run was active.")
    ] = None
    receipt_days: Annotated[int | None, Meta(description="Responses to requests with an Idempotency-Key.")] = None
    audit_days: Annotated[int | None, Meta(description="Audit events.")] = None
    delivery_days: Annotated[int | None, Meta(description="Ended deliveries of webhooks.")] = None
    usage_days: Annotated[int | None, Meta(description="Tokens and cost of each run and day.")] = None

    def set_days(self) -> dict[str, int]:
        """Without the kinds that are not set."""
        return {kind: days for kind, days in asdict(self).items() if days is not None}


def retention_in_force(own: RetentionDays, defaults: RetentionDays) -> RetentionDays:
    """`own`: of a workspace. Audit events are kept at least as long as the server keeps them, and the database ensures
    it. Events do not outlive their run."""
    chosen = replace(defaults, **own.set_days())
    audit_days = None if defaults.audit_days is None else max(defaults.audit_days, own.audit_days or 0)
    event_days = min((days for days in (chosen.event_days, chosen.run_days) if days is not None), default=None)
    return replace(chosen, audit_days=audit_days, event_days=event_days)
