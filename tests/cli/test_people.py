"""`qd workspaces`, `members`, `invitations`, `devices` and `profile`, and a member who is removed."""

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.core.actors import Role
from quarterdeck.people import members
from tests.cli.people import Nearby, nearby
from tests.cli.screen import terminal
from tests.cli.signing_in import signed_in
from tests.people import PASSWORD, Browser, Person, invite, join, new_email
from tests.world import Server, World, error_of

NO_MEMBER = "You are not a member of this workspace any more. Choose another with `qd workspaces list`"


async def second_workspace(world: World, person: Person, role: Role) -> World:
    other = await World.create(world.database_url, world.http)
    await other.execute("UPDATE workspaces SET name = 'Second' WHERE id = %s", other.workspace_id)
    await join(person, other, role)
    return other


async def remove(world: World, person: Person) -> None:
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, person.email)


async def test_one_of_several_workspaces_is_used(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    other = await second_workspace(world, ann, Role.VIEWER)
    person = await signed_in(tmp_path, server, ann)
    first, second = str(world.workspace_id), str(other.workspace_id)

    def listed() -> list[tuple[str, str, bool]]:
        return [
            (one["workspace_id"], one["role"], one["current"]) for one in person.json("workspaces", "list")["items"]
        ]

    assert listed() == [(first, "member", True), (second, "viewer", False)]
    told = person.done("workspaces", "use", "second")
    assert told == "Commands now use Second, where you are viewer (profile default)\n"
    assert listed() == [(first, "member", False), (second, "viewer", True)]
    assert person.refused("sessions", "create")[0] == 3
    once = Nearby(tmp_path, {"QD_WORKSPACE": first})
    assert once.json("sessions", "create")["workspace_id"] == first
    assert once.json("whoami")["workspace_id"] == first
    assert person.json("whoami")["workspace_id"] == second
    ended = once.qd("workspaces", "use", first)
    assert "QD_WORKSPACE in this shell overrides it. Run `unset QD_WORKSPACE`." in ended.stderr
    assert "yes" in person.done("workspaces", "list").splitlines()[1]


async def test_the_workspace_of_others_is_not_used(tmp_path: Path, server: Server, world: World) -> None:
    person = await signed_in(tmp_path, server, await Person.join(world, Role.MEMBER))
    other = await World.create(server.database_url, world.http)
    code, told = person.refused("workspaces", "use", str(other.workspace_id))
    assert (code, told.startswith("You are not a member of the workspace")) == (4, True)
    assert person.refused("workspaces", "use", "Second")[0] == 4
    assert person.json("whoami")["workspace_id"] == str(world.workspace_id)


async def test_who_leaves_a_workspace_chooses_another(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    other = await second_workspace(world, ann, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    assert person.refused("members", "leave")[0] == 2, "needs --yes"
    assert person.done("members", "leave", "--yes") == "left Test\n"
    for command in (["sessions", "list"], ["whoami"], ["send", str(world.workspace_id), "text"]):
        code, told = person.refused(*command)
        assert (code, told.startswith(NO_MEMBER)) == (3, True), told
    assert [one["current"] for one in person.json("workspaces", "list")["items"]] == [False]
    person.done("workspaces", "use", "Second")
    assert person.json("whoami")["workspace_id"] == str(other.workspace_id)


async def test_members_and_invitations(tmp_path: Path, server: Server, world: World) -> None:
    admin = await Person.join(world, Role.ADMIN)
    person, email = await signed_in(tmp_path, server, admin), new_email()
    told = person.done("members", "invite", email, "--role", "viewer")
    link = next(line.split()[1] for line in told.splitlines() if line.startswith("link "))
    assert link.startswith(f"{server.url}/#/invitation?token=qdi_live_")
    (pending,) = person.json("invitations", "list")["items"]
    assert (pending["email"], pending["role"]) == (email, "viewer")
    assert "token" not in pending
    ann = Browser(world)
    body = {"token": link.partition("token=")[2], "password": PASSWORD, "display_name": "Ann"}
    assert (await ann.post("/v1/invitations/accept", body)).status_code == 200
    assert person.json("invitations", "list")["items"] == []
    states = [line.split()[3] for line in person.done("invitations", "list", "--all").splitlines()[1:]]
    # The admin's own was made by the operator.
    assert states == ["accepted", "accepted"]
    assert roles(person)[email] == "viewer"
    assert person.done("members", "set-role", email, "member") == f"{email} is now member\n"
    assert (await ann.post("/v1/sessions", {})).status_code == 201
    assert person.json("members", "set-role", "ann", "viewer")["role"] == "viewer"
    assert person.refused("members", "remove", email)[0] == 2, "needs --yes"
    assert person.done("members", "remove", email, "--yes") == f"removed {email}\n"
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized")
    assert email not in roles(person)
    assert email in roles(person, "--all")
    assert person.refused("members", "remove", email, "--yes") == (
        4,
        f"No member matches {email!r}. Use an ID, an ID prefix or a name.",
    )


def roles(person: Nearby, *options: str) -> dict[str, str]:
    items: list[dict[str, Any]] = person.json("members", "list", *options)["items"]
    return {one["user"]["primary_email"]: one["role"] for one in items}


async def test_the_link_is_in_the_json_too(tmp_path: Path, server: Server, world: World) -> None:
    """With an API key, too."""
    made = nearby(tmp_path, server, world).json("members", "invite", new_email())
    assert made["link"] == f"{server.url}/#/invitation?token={made['token']}"
    assert made["role"] == "member"


async def test_a_revoked_invitation(tmp_path: Path, server: Server, world: World) -> None:
    person, email = nearby(tmp_path, server, world), new_email()
    token = await invite(world, email, Role.MEMBER)
    assert person.refused("invitations", "revoke", email)[0] == 2, "needs --yes"
    assert person.done("invitations", "revoke", email, "--yes") == f"revoked {email}\n"
    answer = await Browser(world).post("/v1/invitations/look-up", {"token": token})
    assert error_of(answer) == (404, "not_found")
    assert "revoked" in person.done("invitations", "list", "--all")
    assert person.refused("invitations", "revoke", email, "--yes")[0] == 4


async def test_what_a_role_does_not_allow(tmp_path: Path, server: Server, world: World) -> None:
    person = await signed_in(tmp_path, server, await Person.join(world, Role.MEMBER))
    assert person.refused("members", "invite", new_email())[0] == 3
    admin = await signed_in(tmp_path, server, await Person.join(world, Role.ADMIN))
    code, told = admin.refused("members", "invite", new_email(), "--role", "owner")
    assert (code, told) == (3, "Only an owner can give or take the role of an owner.")
    assert admin.refused("members", "set-role", "nobody@example.com", "boss")[0] == 2


async def test_devices(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    own, browser = person.json("devices", "list")["items"]
    assert (own["kind"], browser["kind"]) == ("command_line", "browser")
    lines = person.done("devices", "list").splitlines()
    assert [("yes" in line.split(), "command line" in line) for line in lines[1:]] == [(True, True), (False, False)]
    code, told = person.refused("devices", "end", own["id"], "--yes")
    assert (code, told) == (2, "This is the device that you are using. Use `qd logout`.")
    assert person.refused("devices", "end", browser["id"])[0] == 2, "needs --yes"
    assert person.done("devices", "end", "Browser", "--yes") == "signed out Browser\n"
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized")
    assert [one["id"] for one in person.json("devices", "list")["items"]] == [own["id"]]


async def test_profile(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    facts = [line.split(maxsplit=1) for line in person.done("profile").splitlines()]
    assert facts == [["email", ann.email], ["password", "set"], ["workspace", f"{world.workspace_id} Test (member)"]]
    assert person.json("profile", "--name", "Ann Other")["user"]["display_name"] == "Ann Other"
    assert "Ann Other" in person.done("whoami")
    assert person.json("profile", "--no-name")["user"]["display_name"] is None
    assert person.refused("profile", "--name", "x", "--no-name")[0] == 2
    assert person.refused("profile", "--password") == (2, "Passwords are only read from a terminal.")


async def test_a_new_password(tmp_path: Path, server: Server, world: World) -> None:
    ann, new = await Person.join(world, Role.MEMBER), "another long password"
    person = await signed_in(tmp_path, server, ann)
    answers = {"Current password": PASSWORD, "New password: ": new, "New password again": "a third password"}
    code, shown = person.at_terminal("profile", "--password", answers=answers)
    assert (code, "The new passwords differ. Nothing was changed." in shown) == (2, True)
    code, shown = person.at_terminal("profile", "--password", answers=answers | {"Current password": "wrong"})
    assert code == 2
    code, shown = person.at_terminal("profile", "--password", answers=answers | {"New password again": new})
    assert code == 0, shown
    assert "Your other devices are signed out." in shown
    assert new not in shown
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized"), "the browser"
    assert (await Browser(world).sign_in(ann.email, new)).status_code == 200
    assert person.json("whoami")["kind"] == "device"


@pytest.mark.parametrize(
    "command",
    [["workspaces", "list"], ["members", "leave", "--yes"], ["devices", "list"], ["devices", "end", "x"], ["profile"]],
    ids=" ".join,
)
async def test_a_key_is_not_a_person(tmp_path: Path, server: Server, world: World, command: list[str]) -> None:
    code, told = nearby(tmp_path, server, world).refused(*command)
    expected = "This is for people. API keys and tokens cannot use it. Sign in with `qd login`."
    assert (code, told) == (3, expected)


async def test_the_profile_of_a_key_has_one_workspace(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    person.done("login", "--key", "--url", server.url, given=world.key)
    code, told = person.refused("workspaces", "use", str(world.workspace_id))
    assert (code, "works in one workspace only" in told) == (3, True)


@pytest.mark.parametrize("is_member_elsewhere", [False, True])
@pytest.mark.parametrize("command", ["watch", "chat"])
async def test_a_removed_member_is_told(
    tmp_path: Path, server: Server, world: World, command: str, is_member_elsewhere: bool
) -> None:
    ann = await Person.join(world, Role.MEMBER)
    if is_member_elsewhere:
        await second_workspace(world, ann, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    session_id = await world.new_session()
    await world.submit(session_id, "The first input")
    with terminal(command, session_id, variables=person.environ, columns=200) as screen:
        screen.wait("The first input")
        # Arrives on the stream.
        await world.submit(session_id, "The second input")
        screen.wait("The second input")
        await remove(world, ann)
        assert screen.ended() == 3
        shown = screen.text()
    expected = NO_MEMBER if is_member_elsewhere else "its person is no longer a member. Run `qd login`"
    assert expected in shown, shown
    assert "Traceback" not in shown
