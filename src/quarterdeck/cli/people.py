"""`qd workspaces`, `members`, `invitations`, `devices` and `profile`: people, and where they have signed in."""

import os
import sys
from contextlib import suppress
from getpass import getpass
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import asdict, replace

from quarterdeck.cli import completion, connection, find
from quarterdeck.cli.commands import command, with_client
from quarterdeck.cli.connection import is_device, profile_name
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import (
    Limit,
    Profile,
    Yes,
    argument,
    check_either,
    choice,
    confirm,
    email,
    flag,
    line,
    one_of,
    option,
)
from quarterdeck.cli.output import Page, Result, cell, date_text, note, say
from quarterdeck.client import Client, NotFound
from quarterdeck.client.models import DeviceBody, InvitationBody, MemberBody, Role

workspaces_app = typer.Typer(rich_markup_mode=None)
members_app = typer.Typer(rich_markup_mode=None)
invitations_app = typer.Typer(rich_markup_mode=None)
devices_app = typer.Typer(rich_markup_mode=None)

WorkspaceId = Annotated[
    str, argument("WORKSPACE", "ID, ID prefix or name of the workspace.", complete=completion.workspaces)
]
MemberId = Annotated[
    str, argument("MEMBER", "Email address, name, ID or ID prefix of the member.", complete=completion.members)
]
RoleName = Annotated[
    str, argument("ROLE", "owner, admin, member or viewer.", parser=one_of(Role), complete=completion.one_of(Role))
]


class ListedWorkspace(Struct, frozen=True):
    workspace_id: str
    workspace_name: str
    role: Role
    # Whether commands act in it.
    current: bool


@command(workspaces_app, "list")
def list_workspaces(client: Client) -> Page[ListedWorkspace]:
    """List your workspaces, and which one commands use."""
    current = None
    with suppress(NotFound):
        # The person may have left it.
        current = client.whoami().workspace_id
    found = [
        ListedWorkspace(str(one.workspace_id), one.workspace_name, one.role, one.workspace_id == current)
        for one in find.own_profile(client).workspaces
    ]
    columns = ("ID", "NAME", "ROLE", "CURRENT")
    return Page(
        iter(found),
        len(found) + 1,
        columns,
        lambda one: [one.workspace_id, cell(one.workspace_name), one.role, one.current],
        "No workspaces.",
    )


@workspaces_app.command("use")
def use_workspace(workspace: WorkspaceId, profile: Profile = None) -> None:
    """Choose the workspace that later commands use."""
    name = profile_name(profile)
    saved = connection.read_profile(name)
    if not is_device(saved.key):
        raise CliError(
            f"The profile {name} is an API key, which works in one workspace only. Sign in with `qd login`.",
            ExitCode.NOT_ALLOWED,
        )
    with connection.open_client(name) as client:
        found = find.membership(client, workspace)
    connection.save_profile(name, replace(saved, workspace=str(found.workspace_id)))
    say(f"Commands now use {found.workspace_name}, where you are {found.role} (profile {name})")
    if profile is None and (
        others := [each for each in (connection.WORKSPACE, connection.KEY) if os.environ.get(each)]
    ):
        note(f"{' and '.join(others)} in this shell overrides it. Run `unset {' '.join(others)}`.")


@command(members_app, "list")
def list_members(
    client: Client, all_: Annotated[bool, flag("--all", "Also list former members.")] = False, limit: Limit = 50
) -> Page[MemberBody]:
    """List the members of the workspace and their roles."""
    found = (one for one in client.iter_members() if all_ or one.ended_at is None)
    columns = ("ID", "EMAIL", "NAME", "ROLE", "JOINED", *(["LEFT"] if all_ else []))
    return Page(found, limit, columns, lambda one: _member_row(one)[: len(columns)], "No members.")


def _member_row(one: MemberBody) -> list[object]:
    user = one.user
    return [user.user_id, user.primary_email, cell(user.display_name or ""), one.role, one.joined_at, one.ended_at]


@command(members_app)
def invite(
    client: Client,
    address: Annotated[str, argument("EMAIL", "Email address of the person.", parser=email)],
    role: Annotated[str, choice("ROLE", "owner, admin, member or viewer.", values=Role)] = Role.MEMBER,
) -> Result:
    """Invite a person and print the link, which is shown only once."""
    created = client.create_invitation(email=address, role=Role(role))
    link = f"{client.base_url}/#/invitation?token={created.token}"
    hint = f"Give the link to {created.email} yourself. It works once, until {date_text(created.expires_at)}."
    return Result({**asdict(created), "link": link}, f"invitation {created.id}\nlink {link}", hint=hint)


@command(members_app)
def set_role(client: Client, member: MemberId, role: RoleName) -> Result:
    """Change the role of a member. Takes effect immediately."""
    changed = client.change_member(find.member_id(client, member), role=Role(role))
    return Result(changed, f"{_name(changed)} is now {changed.role}")


@command(members_app)
def remove(client: Client, member: MemberId, yes: Yes = False) -> None:
    """Remove a member. Revokes their keys and tokens in this workspace."""
    found_id = find.member_id(client, member)
    confirm(f"Remove {member}, and revoke their keys?", yes=yes)
    client.remove_member(found_id)
    say(f"removed {member}")


@command(members_app)
def leave(client: Client, yes: Yes = False) -> None:
    """Leave the workspace. Revokes your keys and tokens there."""
    find.own_profile(client)
    caller = client.whoami()
    confirm(f"Leave {caller.workspace_name}, and revoke your keys there?", yes=yes)
    client.leave_workspace(workspace_id=caller.workspace_id)
    say(f"left {caller.workspace_name}")


@command(invitations_app, "list")
def list_invitations(
    client: Client,
    all_: Annotated[bool, flag("--all", "Also list accepted, revoked and expired ones.")] = False,
    limit: Limit = 50,
) -> Page[InvitationBody]:
    """List pending invitations, newest first."""
    found = (one for one in client.iter_invitations() if all_ or find.is_open(one))
    columns = ("ID", "EMAIL", "ROLE", "STATE", "EXPIRES", "CREATED", "BY")
    return Page(found, limit, columns, _invitation_row, "No pending invitations.")


def _invitation_row(one: InvitationBody) -> list[object]:
    states = [("accepted", one.accepted_at), ("revoked", one.withdrawn_at), ("pending", find.is_open(one))]
    state = next((name for name, is_so in states if is_so), "expired")
    return [one.id, one.email, one.role, state, one.expires_at, one.created_at, one.created_by or "operator"]


@command(invitations_app)
def revoke(
    client: Client,
    invitation: Annotated[
        str, argument("INVITATION", "ID, ID prefix or email address.", complete=completion.invitations)
    ],
    yes: Yes = False,
) -> None:
    """Revoke a pending invitation. Its link stops working."""
    found_id = find.invitation_id(client, invitation)
    confirm(f"Revoke the invitation {invitation}?", yes=yes)
    client.withdraw_invitation(found_id)
    say(f"revoked {invitation}")


@command(devices_app, "list")
def list_devices(client: Client, limit: Limit = 50) -> Page[DeviceBody]:
    """List where you are signed in, newest first."""
    own_id = find.own_profile(client).device_id
    columns = ("ID", "NAME", "KIND", "THIS ONE", "ADDRESS", "LAST USED", "SIGNED IN", "EXPIRES")

    def row(one: DeviceBody) -> list[object]:
        kind, last_used = one.kind.replace("_", " "), one.last_used_at or "never"
        return [one.id, cell(one.name), kind, one.id == own_id, one.address, last_used, one.created_at, one.expires_at]

    return Page(client.iter_devices(), limit, columns, row, "No devices.")


@command(devices_app)
def end(
    client: Client,
    device: Annotated[str, argument("DEVICE", "ID, ID prefix or name of the device.", complete=completion.devices)],
    yes: Yes = False,
) -> None:
    """Sign out a device. Takes effect immediately."""
    own_id = find.own_profile(client).device_id
    found_id = find.device_id(client, device)
    if found_id == own_id:
        raise CliError("This is the device that you are using. Use `qd logout`.")
    confirm(f"Sign out {device}?", yes=yes)
    client.end_device(found_id)
    say(f"signed out {device}")


@with_client
def profile(
    client: Client,
    name: Annotated[str | None, option("NAME", "Your new name, as others see it.", parser=line)] = None,
    no_name: Annotated[bool, flag("--no-name", "Remove your name. Others see your email address.")] = False,
    password: Annotated[bool, flag("--password", "Change your password. Signs out your other devices.")] = False,
) -> Result:
    """Show or change your name and password."""
    check_either("--name", name, "--no-name", no_name)
    found = find.own_profile(client)
    if password:
        old, new = _prompt_passwords(has_password=found.has_password)
        found = client.change_password(current_password=old, new_password=new)
    if name is not None or no_name:
        found = client.change_profile(display_name=name)
    facts = [
        ("name", found.user.display_name),
        ("email", found.user.primary_email),
        ("password", "set" if found.has_password else "none"),
        *(("workspace", f"{one.workspace_id} {one.workspace_name} ({one.role})") for one in found.workspaces),
    ]
    return Result(found, facts, hint="Changed the password. Your other devices are signed out." if password else None)


def _prompt_passwords(*, has_password: bool) -> tuple[str | None, str]:
    """The current one, if there is one, and the new one."""
    if not sys.stdin.isatty():
        raise CliError("Passwords are only read from a terminal.")
    old = getpass("Current password: ", sys.stderr) if has_password else None
    new = getpass("New password: ", sys.stderr)
    if getpass("New password again: ", sys.stderr) != new:
        raise CliError("The new passwords differ. Nothing was changed.")
    return old, new


def _name(one: MemberBody) -> str:
    return one.user.primary_email or str(one.user.user_id)
