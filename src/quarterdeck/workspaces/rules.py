"""Decides how the retention of a workspace changes."""

from msgspec import UNSET
from msgspec.structs import asdict, replace

from quarterdeck.core import errors
from quarterdeck.core.retention import RetentionDays
from quarterdeck.workspaces.model import SetRetention


def changed_retention(own: RetentionDays, change: SetRetention, server_audit_days: int | None) -> RetentionDays:
    """A workspace can keep audit events longer than the server, not shorter: its managers must not be able to remove
    what they did."""
    audit_days = change.audit_days
    if audit_days and server_audit_days is not None and audit_days < server_audit_days:
        raise errors.invalid(f"retention.audit_days must be at least {server_audit_days}, the setting of the server.")
    return replace(own, **{kind: days for kind, days in asdict(change).items() if days is not UNSET})
