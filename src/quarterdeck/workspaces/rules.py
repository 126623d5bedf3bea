"""Decides how the retention of a workspace changes."""

from msgspec import UNSET
from msgspec.structs import asdict, replace

from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.retention import RetentionDays
from quarterdeck.workspaces.model import SetRetention

MAY_NOT_EXPIRE = "To change the retention of runs, events or files, the permission session.manage is needed too."


def check_may_expire(principal: Principal, own: RetentionDays, wanted: RetentionDays) -> None:
    """A short retention deletes conversations, as deleting sessions does. null counts too: the server may delete
    earlier than the workspace does."""
    before, after = ((each.run_days, each.event_days, each.file_days) for each in (own, wanted))
    if before != after and not principal.may(Permission.SESSION_MANAGE):
        raise errors.exceeds_caller(MAY_NOT_EXPIRE)


def changed_retention(own: RetentionDays, change: SetRetention, server_audit_days: int | None) -> RetentionDays:
    """A workspace can keep audit events longer than the server, not shorter: its managers must not be able to remove
    what they did."""
    audit_days = change.audit_days
    if audit_days and server_audit_days is not None and audit_days < server_audit_days:
        raise errors.invalid(f"retention.audit_days must be at least {server_audit_days}, the setting of the server.")
    return replace(own, **{kind: days for kind, days in asdict(change).items() if days is not UNSET})
