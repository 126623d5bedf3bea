"""People in the console: accounts, invitations, roles, members, devices."""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from quarterdeck.core.actors import Role
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.people import invitations, members
from tests.console.browser import NARROW, WIDE, ConsolePage, Scheme, open_console
from tests.people import PASSWORD, Person, invite, new_email
from tests.workers import Worker
from tests.world import Server, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINK = re.compile(r"#/invitation\?token=(qdi_\w+)")
# What scripts can read, and what a script of another site could have planted.
STORED = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"


@pytest_asyncio.fixture(loop_scope="session")
async def other(browser: Browser, server: Server) -> AsyncIterator[ConsolePage]:
    """Another browser profile."""
    async with open_console(browser, server.url) as console:
        yield console


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


def row(console: ConsolePage, text: str) -> Locator:
    return console.page.get_by_role("row").filter(has_text=text)


async def account_link(world: World) -> tuple[str, str]:
    """The email address of the owner, and the token of a link as `qd serve` prints it at its first start."""
    email = (await world.get("/v1/workspace")).json()["owner"]["primary_email"]
    async with await world.connect() as connection:
        token = await invitations.account_link(connection, KeySettings(environment="test"), SignInSettings(), email)
    return email, token


async def invite_by_dialog(console: ConsolePage, email: str, role: str) -> str:
    """The token of the link that the dialog shows once."""
    await console.page.get_by_role("button", name="Invite").click()
    await dialog(console).get_by_label("Email").fill(email)
    await dialog(console).get_by_label(role, exact=True).check()
    await dialog(console).get_by_role("button", name="Create link").click()
    await dialog(console).get_by_role("button", name="Copy link").click()
    link: str = await console.page.evaluate("navigator.clipboard.readText()")
    await dialog(console).get_by_role("button", name="I've copied the link").click()
    await expect(row(console, email)).to_be_focused()
    found = LINK.search(link)
    assert found is not None, link
    assert link.startswith(console.url)
    return found[1]


async def create_account(console: ConsolePage, name: str) -> None:
    await console.page.get_by_label("Name").fill(name)
    await console.page.get_by_label("Password", exact=True).fill(PASSWORD)
    await console.page.get_by_role("button", name="Create account").click()
    await expect(console.account).to_contain_text(name)


async def choose_in_menu(console: ConsolePage, item: str) -> None:
    await console.account.click()
    await console.page.locator(".account-menu").get_by_text(item).click()


async def sign_out(console: ConsolePage) -> None:
    await choose_in_menu(console, "Sign out")
    await console.heading("Sign in")


async def nothing_is_stored(console: ConsolePage, *secrets: str) -> None:
    stored: str = await console.page.evaluate(STORED)
    cookies = await console.page.context.cookies()
    for secret in ("qdd_", "qdi_", PASSWORD, *secrets, *(cookie.get("value", "") for cookie in cookies)):
        assert secret not in stored
    for cookie in cookies:
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")


@pytest.mark.long
async def test_from_the_first_start_to_a_session_of_two(
    console: ConsolePage, other: ConsolePage, world: World, worker: Worker
) -> None:
    page = console.page
    email, token = await account_link(world)
    await console.open(f"/invitation?token={token}")
    await console.heading("Choose a password")
    assert token not in page.url
    await expect(page.get_by_label("Email")).to_have_value(email)
    await page.get_by_label("Name").fill("Ada Marlowe")
    await page.get_by_label("New password", exact=True).fill("short")
    await page.get_by_role("button", name="Save and sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("Use at least 10 characters.")
    await expect(page.get_by_label("New password", exact=True)).to_be_focused()
    await page.get_by_label("New password", exact=True).fill(PASSWORD)
    await page.get_by_role("button", name="Save and sign in").click()
    await console.heading("Sessions")
    await expect(console.account).to_contain_text("Ada Marlowe")
    await nothing_is_stored(console, token)

    await page.get_by_role("link", name="Members").click()
    grace = new_email()
    link = await invite_by_dialog(console, grace, "Member")
    await other.open(f"/invitation?token={link}")
    await other.heading("Join Test")
    assert link not in other.page.url
    invited = "Ada Marlowe invites you to the workspace Test with the role Member."
    await expect(other.page.get_by_role("main")).to_contain_text(invited)
    await expect(other.page.get_by_label("Email")).to_have_value(grace)
    await create_account(other, "Grace Osei")
    await nothing_is_stored(other, link)

    await page.get_by_role("link", name="Sessions").click()
    await page.get_by_role("button", name="New session").first.click()
    await dialog(console).get_by_label("Title").fill("Of two")
    await dialog(console).get_by_role("button", name="Create").click()
    await console.heading("Of two")
    await other.page.get_by_role("link", name="Of two").click()
    await other.heading("Of two")
    await approve_what_the_other_asked_for(page, other.page, world)
    await page.reload()
    await expect(page.locator(".action.answered").last).to_contain_text("Allowed by Grace Osei")


async def approve_what_the_other_asked_for(asking: Page, approving: Page, world: World) -> None:
    session_id = asking.url.rpartition("/")[2].partition("?")[0]
    changed = await world.patch(f"/v1/sessions/{session_id}", {"tool_policy": {"add_note": "ask"}})
    assert changed.status_code == 200, changed.text
    await asking.get_by_label("Message").fill('call: add_note {"text": "from Ada"}')
    await asking.keyboard.press("Enter")
    await expect(approving.get_by_role("article", name="Input")).to_contain_text("Ada Marlowe")
    await approving.get_by_role("button", name="Allow", exact=True).click()
    await expect(approving.locator(".action.answered").last).to_contain_text("Allowed by Grace Osei")
    await expect(asking.locator(".action.answered").last).to_contain_text("Allowed by Grace Osei")
    await approving.get_by_label("Message").fill("Thank you")
    await approving.keyboard.press("Enter")
    await expect(asking.get_by_role("article", name="Input").last).to_contain_text("Grace Osei")
    # Of oneself, only with the time.
    await expect(asking.locator(".sender").filter(has_text="Ada Marlowe")).to_have_count(0)


async def test_a_former_member_comes_back(console: ConsolePage, world: World) -> None:
    person = await Person.join(world, Role.MEMBER)
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, person.email)
    token = await invite(world, person.email, Role.VIEWER)
    await console.open(f"/invitation?token={token}")
    await console.page.get_by_role("button", name="Sign in to join").click()
    await console.page.get_by_label("Email").fill(person.email)
    await console.page.get_by_label("Password").fill(PASSWORD)
    await console.page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(console.account).to_contain_text(person.email)
    assert console.page.url.endswith("#/sessions")
    await person.sign_in(person.email)
    assert (await person.get("/v1/whoami")).json()["role"] == "viewer"


async def test_sign_in_returns_to_the_page(console: ConsolePage, world: World) -> None:
    ann = await Person.join(world, Role.ADMIN)
    page = console.page
    await console.open("/keys")
    await page.get_by_label("Email").fill(ann.email)
    await page.get_by_label("Password").fill("not the password")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("The email address or the password is wrong.")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await console.heading("API keys")
    await nothing_is_stored(console)
    await page.reload()
    await console.heading("API keys")
    tab = await page.context.new_page()
    # The only request that is made without the user. It would find that the sign-in has ended.
    await tab.route("**/v1/actions?*", lambda route: route.fulfill(json={"items": [], "next_cursor": None}))
    await tab.goto(f"{console.url}/#/sign-in")
    await expect(tab.get_by_role("heading", level=1, name="Sessions")).to_be_visible()
    # Another tab follows when the browser is signed out, and nothing comes back with the Back button.
    await sign_out(console)
    await expect(tab.get_by_role("heading", level=1, name="Sign in", exact=True)).to_be_visible()
    await page.goto("about:blank")
    await page.go_back()
    await console.heading("Sign in")
    assert await page.context.cookies() == []


@pytest.mark.long
async def test_a_shared_link_does_not_replace_a_person(console: ConsolePage, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    session_id = await world.new_session()
    link = f"/sessions/{session_id}?token={await world.new_token(session_id)}"
    await console.sign_in_person(ann.email, PASSWORD)
    await console.page.goto("about:blank")
    await console.open(link)
    await expect(console.page.get_by_label("Message")).to_be_visible()
    await expect(console.account).to_be_visible()
    assert "token" not in console.page.url
    await nothing_is_stored(console, "qds_")
    await sign_out(console)
    await console.page.goto("about:blank")
    await console.open(link)
    await expect(console.page.get_by_label("Message")).to_be_visible()
    await expect(console.account).to_have_count(0)


@pytest.mark.long
async def test_files_and_streams_with_the_cookie(
    console: ConsolePage, world: World, worker: Worker, tmp_path: Path
) -> None:
    ann = await Person.join(world, Role.MEMBER)
    page = console.page
    session_id = await world.new_session()
    await console.sign_in_person(ann.email, PASSWORD, f"/sessions/{session_id}")
    notes = tmp_path / "notes.txt"
    notes.write_text("from a cookie")
    await page.locator("input[type=file]").set_input_files(notes)
    await page.get_by_label("Message").fill("Read this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Completed", exact=True)).to_be_visible()
    # Nobody has given this person a name.
    await expect(page.get_by_role("article", name="Input").locator(".at", has_text=ann.email)).to_be_attached()
    await page.get_by_role("button", name="More").click()
    async with page.expect_download() as started:
        await page.get_by_role("button", name="Export as Markdown").click()
    exported = Path(await (await started.value).path()).read_text()
    assert "Read this" in exported
    async with page.expect_download() as started:
        await page.get_by_role("article", name="Input").get_by_role("button", name="Download notes.txt").click()
    assert Path(await (await started.value).path()).read_text() == "from a cookie"
    await page.get_by_role("article", name="Input").get_by_role("button", name="notes.txt").first.click()
    await expect(page.get_by_text("from a cookie")).to_be_visible()


@pytest.mark.long
async def test_members(console: ConsolePage, world: World) -> None:
    owner = await Person.join(world, Role.OWNER)
    grace = await Person.join(world, Role.MEMBER)
    first = (await world.get("/v1/workspace")).json()["owner"]
    page = console.page
    await console.sign_in_person(owner.email, PASSWORD, "/members")
    await expect(row(console, owner.email)).to_contain_text("You")
    await row(console, grace.email).get_by_role("button", name="Change role").click()
    await expect(dialog(console).get_by_label("Member", exact=True)).to_be_checked()
    await dialog(console).get_by_label("Viewer", exact=True).check()
    await dialog(console).get_by_role("button", name="Change role").click()
    await expect(row(console, grace.email)).to_contain_text("Viewer")
    await expect(row(console, grace.email)).to_be_focused()
    assert (await grace.get("/v1/whoami")).json()["role"] == "viewer"

    await page.get_by_role("button", name="Invite").click()
    await dialog(console).get_by_label("Email").fill("nobody")
    await dialog(console).get_by_role("button", name="Create link").click()
    await expect(dialog(console).get_by_label("Email")).to_be_focused()
    await expect(dialog(console).get_by_role("alert")).to_be_visible()
    await dialog(console).get_by_role("button", name="Cancel").click()
    invited = new_email()
    await invite_by_dialog(console, invited, "Viewer")
    await row(console, invited).get_by_role("button", name="Revoke").click()
    await dialog(console).get_by_role("button", name="Revoke invitation").click()
    await expect(row(console, invited)).to_have_count(0)

    for email in (grace.email, first["primary_email"]):
        await row(console, email).get_by_role("button", name="Remove").click()
        await dialog(console).get_by_role("button", name="Remove member").click()
        former = page.get_by_role("table", name="Former members")
        await expect(former.get_by_role("row").filter(has_text=email)).to_be_visible()
    await page.get_by_role("button", name="Leave").click()
    await dialog(console).get_by_role("button", name="Leave workspace").click()
    last = "The workspace must keep an owner. Make another member an owner first."
    await expect(dialog(console).get_by_role("alert")).to_have_text(last)
    await page.keyboard.press("Escape")
    await row(console, owner.email).get_by_role("button", name="Change role").click()
    await dialog(console).get_by_label("Admin", exact=True).check()
    await dialog(console).get_by_role("button", name="Change role").click()
    await expect(dialog(console).get_by_role("alert")).to_have_text(last)


@pytest.mark.long
async def test_what_a_role_does_not_allow_is_not_offered(
    console: ConsolePage, other: ConsolePage, world: World
) -> None:
    admin, viewer = await Person.join(world, Role.ADMIN), await Person.join(world, Role.VIEWER)
    await console.sign_in_person(admin.email, PASSWORD, "/members")
    owner = console.page.get_by_role("row").filter(has=console.page.get_by_text("Owner", exact=True))
    await expect(owner).to_have_count(1)
    await expect(owner.get_by_role("button")).to_have_count(0)
    await row(console, viewer.email).get_by_role("button", name="Change role").click()
    await expect(dialog(console).get_by_label("Owner", exact=True)).to_be_disabled()
    await expect(dialog(console)).to_contain_text("Only an owner can make others owners.")
    await dialog(console).get_by_label("Admin", exact=True).check()

    page = other.page
    session_id = await world.new_session()
    skill_id, agent_id = await world.new_skill(), await world.new_agent()
    server_id, webhook_id = await world.new_mcp_server(), await world.new_webhook()
    await world.new_credential()
    await other.sign_in_person(viewer.email, PASSWORD, "/activity")
    left: dict[str, list[str]] = {}
    for path in (
        "/sessions", f"/sessions/{session_id}", "/inbox", "/agents", f"/agents/{agent_id}", "/skills",
        f"/skills/{skill_id}", "/mcp-servers", f"/mcp-servers/{server_id}", "/credentials", "/keys", "/webhooks",
        f"/webhooks/{webhook_id}", "/members", "/workspace",
    ):  # fmt: skip
        await other.load(path)
        buttons = page.get_by_role("main").get_by_role("button").locator("visible=true")
        left[path] = [await one.inner_text() for one in await buttons.all() if await one.is_enabled()]
    # Own membership, and what reads.
    allowed = {"Leave", "More", "Files", "Copy", "Search", "Clear filters", "Last 30 days", "Conversations"}
    assert {path: names for path, names in left.items() if not set(names) <= allowed} == {}
    await other.load(f"/sessions/{session_id}")
    reason = "Read-only: your role (viewer) does not have the permission session.manage."
    await expect(page.get_by_text(reason)).to_be_visible()
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.get_by_role("button", name="New session").first).to_be_disabled()


@pytest.mark.long
async def test_a_removed_member_is_sent_to_the_sign_in(console: ConsolePage, world: World, worker: Worker) -> None:
    ann = await Person.join(world, Role.MEMBER)
    session_id = await world.new_session()
    sent: list[str] = []
    await console.sign_in_person(ann.email, PASSWORD, f"/sessions/{session_id}")
    await expect(console.page.get_by_label("Message")).to_be_visible()
    assert (await world.delete(f"/v1/members/{await ann.id()}")).status_code == 204
    # Its stream ends.
    await console.heading("Sign in again")
    await expect(console.page.get_by_role("alert")).to_contain_text("you are no longer a member of the workspace")
    console.page.on("request", lambda request: sent.append(request.url))
    await console.page.get_by_label("Email").fill(ann.email)
    await console.page.get_by_label("Password").fill(PASSWORD)
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("alert")).to_contain_text("The email address or the password is wrong.")
    assert sent == [f"{console.url}/v1/sign-in"], "nothing is requested again and again"


@pytest.mark.long
async def test_several_workspaces(console: ConsolePage, world: World) -> None:
    second = await World.create(world.database_url, world.http)
    await world.execute("UPDATE workspaces SET name = 'Second' WHERE id = %s", second.workspace_id)
    ann = await Person.join(world, Role.ADMIN)
    async with await world.connect() as connection:
        await members.add_by_operator(connection, second.workspace_id, ann.email, Role.VIEWER)
    page = console.page
    await console.sign_in_person(ann.email, PASSWORD)
    await expect(console.account).to_contain_text("Test")
    await page.get_by_role("link", name="Keys").click()
    await choose_in_menu(console, "Second")
    await expect(console.account).to_contain_text("Second")
    await console.heading("Sessions")
    await expect(page.get_by_role("button", name="New session").first).to_be_disabled()
    await page.reload()
    await expect(console.account).to_contain_text("Second")
    tab = await page.context.new_page()
    await tab.goto(console.url)
    await expect(tab.get_by_role("button", name="Account of")).to_contain_text("Second")
    await tab.close()
    await console.account.click()
    await expect(page.locator(".account-menu")).to_contain_text("Viewer of Second")
    assert await console.accessibility_problems() == []
    await page.keyboard.press("Escape")

    assert (await second.delete(f"/v1/members/{await ann.id()}")).status_code == 204
    await page.get_by_role("link", name="Audit log").click()
    await expect(console.account).to_contain_text("Test")
    await expect(page.get_by_text("You are no longer a member of Second.")).to_be_visible()
    await page.get_by_role("link", name="Members").click()
    await page.get_by_role("button", name="Leave").click()
    await dialog(console).get_by_role("button", name="Leave workspace").click()
    await console.heading("Sign in again")
    await expect(page.get_by_role("alert")).to_have_text("You are no longer a member of Test.")


@pytest.mark.long
async def test_profile_and_devices(console: ConsolePage, other: ConsolePage, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    page = console.page
    await console.sign_in_person(ann.email, PASSWORD, "/profile")
    await page.get_by_role("button", name="Change name").click()
    await dialog(console).get_by_label("Name").fill("Ann Ohta")
    await dialog(console).get_by_role("button", name="Save name").click()
    await expect(console.account).to_contain_text("Ann Ohta")
    await expect(row(console, "This device")).to_contain_text("Chrome on Linux")
    await expect(row(console, "This device").get_by_role("button")).to_have_count(0)

    await other.sign_in_person(ann.email, PASSWORD, "/sessions")
    await page.reload()
    # The device of `Person`, and that of the other browser.
    await expect(row(console, "Browser").filter(has_not_text="This device")).to_have_count(2)
    await row(console, "Chrome").nth(1).get_by_role("button", name="Sign out").click()
    await dialog(console).get_by_role("button", name="Sign out device").click()
    await expect(row(console, "Chrome")).to_have_count(1)
    await other.page.get_by_role("link", name="Skills").click()
    await other.heading("Sign in again")
    await expect(other.page.get_by_role("alert")).to_contain_text("You have been signed out.")

    await page.get_by_role("button", name="Change password").click()
    await dialog(console).get_by_label("Current password", exact=True).fill("wrong")
    await dialog(console).get_by_label("New password", exact=True).fill("another pass phrase")
    await dialog(console).get_by_role("button", name="Save password").click()
    await expect(dialog(console).get_by_role("alert")).to_have_text("The current password is wrong.")
    await expect(dialog(console).get_by_label("Current password", exact=True)).to_be_focused()
    await dialog(console).get_by_label("Current password", exact=True).fill(PASSWORD)
    await dialog(console).get_by_role("button", name="Save password").click()
    await expect(page.get_by_role("table", name="Devices").get_by_role("row")).to_have_count(2)
    await page.get_by_role("button", name="Sign out everywhere").click()
    await dialog(console).get_by_role("button", name="Sign out everywhere").click()
    await console.heading("Sign in")
    await console.sign_in_person(ann.email, "another pass phrase", "/profile")
    await console.heading("Profile")


@pytest.mark.long
async def test_approve_a_device(console: ConsolePage, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    page = console.page
    for approve in (True, False):
        code = (await world.http.post("/v1/device-codes", json={"device_name": "qd on workstation"})).json()
        path = f"/devices/approve?code={code['user_code']}" if approve else "/devices/approve"
        if approve:
            await console.sign_in_person(ann.email, PASSWORD, path)
        else:
            await page.get_by_role("link", name="Sessions").click()
            await console.open(path)
            await page.get_by_label("Code").fill("nonsense")
            await page.get_by_role("button", name="Continue").click()
            await expect(page.get_by_role("alert")).to_contain_text("This code is unknown")
            await page.get_by_label("Code").fill(code["user_code"].lower().replace("-", ""))
            await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_role("main")).to_contain_text("qd on workstation")
        await expect(page.get_by_role("main")).to_contain_text("127.0.0.1")
        await expect(page.get_by_text(code["user_code"], exact=True)).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("Approve only if your own terminal shows")
        await page.get_by_role("button", name="Approve" if approve else "Deny").click()
        await expect(page.get_by_role("heading", name="Approved" if approve else "Denied")).to_be_visible()
        body = {"device_code": code["device_code"]}
        redeemed = (await world.http.post("/v1/device-codes/redeem", json=body)).json()
        assert redeemed["state"] == ("approved" if approve else "denied")
    await console.open("/profile")
    await expect(row(console, "qd on workstation")).to_contain_text("Command line")


@pytest.mark.long
async def test_an_invitation_for_somebody_else(console: ConsolePage, world: World) -> None:
    second = await World.create(world.database_url, world.http)
    ann, ben = await Person.join(world, Role.MEMBER), await Person.join(world, Role.MEMBER)
    page = console.page
    token = await invite(second, ann.email, Role.ADMIN)
    await console.sign_in_person(ben.email, PASSWORD)
    await console.open(f"/invitation?token={token}")
    await expect(page.get_by_role("main")).to_contain_text(f"This link is for {ann.email}.")
    await expect(page.get_by_role("main")).to_contain_text(f"You are signed in as {ben.email}.")
    assert await console.accessibility_problems() == []
    await page.get_by_role("button", name="Sign out and continue").click()
    await expect(page.get_by_role("main")).to_contain_text(f"{ann.email} has an account here.")
    assert await console.accessibility_problems() == []
    await page.get_by_role("button", name="Sign in to join").click()
    await page.get_by_label("Email").fill(ann.email)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(console.account).to_contain_text(ann.email)
    await console.account.click()
    await expect(page.locator(".account-menu button[aria-current]")).to_contain_text("Admin")
    await page.keyboard.press("Escape")
    # It was used.
    await console.open(f"/invitation?token={token}")
    await console.heading("This link cannot be used")
    await sign_out_and_use_a_key(console, world, token)


async def sign_out_and_use_a_key(console: ConsolePage, world: World, token: str) -> None:
    await console.open("/sessions")
    await sign_out(console)
    await console.sign_in(world.key, "/profile")
    await expect(console.page.get_by_role("main")).to_contain_text("Sign in with your email to see your profile")
    await console.open(f"/invitation?token={token}")
    await expect(console.page.get_by_role("main")).to_contain_text("You are signed in with a key")
    await console.page.get_by_role("button", name="Sign out and continue").click()
    await console.heading("This link cannot be used")
    assert await console.page.evaluate("sessionStorage.getItem('quarterdeck.credential')") is None


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(NARROW, "light"), (WIDE, "light"), (WIDE, "dark")])
async def test_pages_of_people_are_accessible_and_fit_the_screen(
    browser: Browser, server: Server, world: World, width: int, scheme: Scheme
) -> None:
    ann = await Person.join(world, Role.OWNER)
    await invite(world, new_email(), Role.VIEWER)
    code = (await world.http.post("/v1/device-codes", json={"device_name": "qd on workstation"})).json()["user_code"]
    _, link = await account_link(world)
    opened: AbstractAsyncContextManager[ConsolePage] = open_console(browser, server.url, width=width, scheme=scheme)
    found: dict[str, list[str]] = {}
    async with opened as console:
        for name, heading in (
            (await invite(world, new_email(), Role.MEMBER), "Join Test"),
            (link, "Choose a password"),
        ):
            await console.open(f"/invitation?token={name}")
            await console.heading(heading)
            found[heading] = await problems(console)
        await console.page.get_by_label("New password", exact=True).fill("short")
        await console.page.get_by_role("button", name="Save and sign in").click()
        await expect(console.page.get_by_role("alert")).to_be_visible()
        found["wrong password"] = await problems(console)
        await console.open("/sign-in")
        await console.heading("Sign in")
        found["sign-in"] = await problems(console)
        await console.sign_in_person(ann.email, PASSWORD, "/none")
        for path in ("/members", "/profile", "/devices/approve", f"/devices/approve?code={code}", "/workspace"):
            await console.load(path)
            found[path] = await problems(console)
        await console.account.click()
        found["menu"] = await problems(console)
        await console.page.keyboard.press("Escape")
        for path, button in (
            ("/members", "Invite"), ("/members", f"Change role {ann.email}"), ("/members", "Leave"),
            ("/profile", "Change password"), ("/profile", "Sign out everywhere"),
        ):  # fmt: skip
            if not console.page.url.endswith(path):
                await console.load(path)
            await console.page.get_by_role("button", name=button, exact=True).click()
            await expect(dialog(console)).to_be_visible()
            found[f"{path} {button}"] = await problems(console)
            await console.page.keyboard.press("Escape")
    assert {name: one for name, one in found.items() if one} == {}


async def problems(console: ConsolePage) -> list[str]:
    overflow = await console.overflow()
    too_wide = [f"{overflow} px wider than the screen"] if overflow > 0 else []
    return await console.accessibility_problems() + await console.overlaps() + too_wide
