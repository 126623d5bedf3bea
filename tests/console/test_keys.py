"""The API keys page: create, rotate, revoke."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Locator, Route, expect

from quarterdeck.core.actors import Permission
from quarterdeck.workspaces import service as workspaces
from tests.console.browser import NARROW, ConsolePage
from tests.world import World, error_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

# MAX_ATTEMPTS of api.js.
ATTEMPTS = 4
SECRET = re.compile(r"qd_[a-z]+_[0-9A-Za-z]{20,}")


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


def rows(console: ConsolePage, label: str) -> Locator:
    return console.page.get_by_role("row").filter(has_text=label)


async def secret_shown(console: ConsolePage) -> str:
    """Copy the secret with the button and close the dialog."""
    await expect(dialog(console)).to_contain_text("You won't be able to see it again.")
    shown = dialog(console).get_by_text(SECRET)
    await dialog(console).get_by_role("button", name="Copy secret").click()
    await expect(dialog(console).get_by_role("status")).to_contain_text("Copied")
    copied: str = await console.page.evaluate("navigator.clipboard.readText()")
    assert copied == await shown.text_content()
    # Escape must not close the dialog.
    await console.page.keyboard.press("Escape")
    await expect(shown).to_be_visible()
    await dialog(console).get_by_role("button", name="I've saved this key").click()
    await expect(dialog(console)).to_have_count(0)
    return copied


@pytest.mark.long
async def test_create_rotate_and_revoke(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    await page.get_by_role("button", name="Create key").click()
    await dialog(console).get_by_label("Label").fill("Night shift")
    await dialog(console).get_by_label("workspace.read").uncheck()
    await dialog(console).get_by_role("button", name="Create key").click()
    await expect(dialog(console).get_by_role("alert")).to_contain_text("Select at least one permission.")
    await expect(dialog(console).get_by_label("Label")).to_have_value("Night shift")
    await dialog(console).get_by_label("workspace.read").check()
    await dialog(console).get_by_label("Expires").select_option(label="In 30 days")
    await dialog(console).get_by_role("button", name="Create key").click()
    first = await secret_shown(console)
    row = rows(console, "Night shift")
    await expect(row).to_be_focused()
    await expect(row).to_contain_text(re.compile("in 4 weeks|in 1 month|in 30 days|next month"))
    await expect(row).to_contain_text("Active")
    assert (await world.get("/v1/workspace", key=first)).status_code == 200

    await row.get_by_role("button", name="Rotate Night shift").click()
    await dialog(console).get_by_label("1 hour").check()
    await dialog(console).get_by_role("button", name="Rotate key").click()
    await expect(dialog(console)).to_contain_text(f"The old key {first[:16]}… remains valid until")
    second = await secret_shown(console)
    old, new = rows(console, f"{first[:16]}…"), rows(console, f"{second[:16]}…")
    await expect(old).to_contain_text("Expires soon")
    await expect(new).to_contain_text("Active")
    for secret in (first, second):
        assert (await world.get("/v1/workspace", key=secret)).status_code == 200

    await new.get_by_role("button", name="Revoke Night shift").click()
    await expect(dialog(console).get_by_role("heading")).to_have_text("Revoke “Night shift”?")
    await expect(dialog(console)).to_contain_text(f"{second[:16]}…")
    await dialog(console).get_by_role("button", name="Cancel").click()
    await expect(new).to_contain_text("Active")
    await new.get_by_role("button", name="Revoke Night shift").click()
    await dialog(console).get_by_role("button", name="Revoke key").click()
    await expect(new).to_contain_text("Revoked")
    await expect(new).to_be_focused()
    assert await new.get_by_role("button").count() == 0
    assert error_of(await world.get("/v1/workspace", key=second)) == (401, "unauthorized")
    await page.reload()
    await expect(rows(console, "Night shift")).to_have_count(2)
    await expect(new).to_contain_text("Revoked")


@pytest.mark.long
async def test_rotate_and_revoke_the_key_in_use(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(await world.new_key(label="Mine"), "/keys")
    await rows(console, "This key").get_by_role("button", name="Rotate Mine").click()
    await expect(dialog(console)).to_contain_text("You are signed in with this key")
    await dialog(console).get_by_label("Revoke immediately").check()
    await dialog(console).get_by_role("button", name="Rotate key").click()
    await expect(dialog(console)).to_contain_text("is revoked")
    secret = await secret_shown(console)
    await expect(rows(console, "This key")).to_contain_text(secret[:16])
    await expect(page.locator(".account")).to_contain_text(secret[:16])
    await rows(console, "This key").get_by_role("button", name="Revoke Mine").click()
    await expect(dialog(console)).to_contain_text("You are signed in with this key")
    await dialog(console).get_by_role("button", name="Revoke key").click()
    await console.heading("Sign in")


@pytest.mark.long
async def test_permissions_and_expiry_are_limited_by_the_key_in_use(console: ConsolePage, world: World) -> None:
    async with await world.connect() as connection:
        await workspaces.configure_workspace(connection, world.workspace_id, max_key_days=40)
    held = (Permission.WORKSPACE_READ, Permission.KEY_MANAGE)
    ends = datetime.now(UTC) + timedelta(days=35)
    secret, _ = await world.new_key_record(held, ends, "Deputy")
    await console.page.set_viewport_size({"width": NARROW, "height": 800})
    await console.sign_in(secret, "/keys")
    await console.page.get_by_role("button", name="Create key").click()
    await expect(dialog(console).get_by_label("skill.manage")).to_be_disabled()
    await expect(dialog(console)).to_contain_text("Your key doesn't have this permission.")
    await expect(dialog(console)).to_contain_text("A key can't outlive the key you are signed in with.")
    choices = await dialog(console).get_by_label("Expires").locator("option").all_text_contents()
    assert [words.partition(":")[0] for words in choices] == [
        "In 7 days",
        "In 30 days",
        "Latest allowed",
        "Custom date…",
    ]
    assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []
    await dialog(console).get_by_label("Label").fill("Short")
    await dialog(console).get_by_label("Expires").select_option("date")
    await dialog(console).get_by_label("Last day").fill((datetime.now(UTC) + timedelta(days=3)).date().isoformat())
    await dialog(console).get_by_role("button", name="Create key").click()
    await secret_shown(console)
    await expect(rows(console, "Short")).to_contain_text("Expires soon")


@pytest.mark.long
async def test_lost_secret(console: ConsolePage, world: World) -> None:
    """The key is created, but no response arrives. Submitting again is the same request: it creates no second key, and
    its response does not contain the secret."""
    lost = 0

    async def lose(route: Route) -> None:
        nonlocal lost
        if route.request.method != "POST" or lost == ATTEMPTS:
            return await route.continue_()
        lost += 1
        if lost == 1:
            await route.fetch()
        return await route.abort()

    await console.page.route("**/v1/api-keys", lose)
    await console.sign_in(world.key, "/keys")
    await console.page.get_by_role("button", name="Create key").click()
    await dialog(console).get_by_label("Label").fill("Unlucky")
    await dialog(console).get_by_role("button", name="Create key").click()
    await expect(dialog(console).get_by_role("alert")).to_contain_text("cannot be reached")
    await dialog(console).get_by_role("button", name="Create key").click()
    await expect(dialog(console).get_by_role("heading", name="Secret lost")).to_be_visible()
    keys = [key for key in (await world.list_keys()).json()["items"] if key["label"] == "Unlucky"]
    assert len(keys) == 1
    await expect(dialog(console)).to_contain_text("Revoke this key and create a new one.")
    await expect(dialog(console)).to_contain_text(keys[0]["id"])
    await dialog(console).get_by_role("button", name="OK").click()
    await rows(console, "Unlucky").get_by_role("button", name="Revoke Unlucky").click()
    await dialog(console).get_by_role("button", name="Revoke key").click()
    await expect(rows(console, "Unlucky")).to_contain_text("Revoked")


@pytest.mark.long
async def test_read_only_key_has_no_actions(console: ConsolePage, world: World) -> None:
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ, label="Reader"), "/keys")
    await expect(rows(console, "Reader")).to_be_visible()
    assert await console.page.get_by_role("main").get_by_role("button").count() == 0


@pytest.mark.long
async def test_missing_permission_is_named(console: ConsolePage, world: World) -> None:
    await console.sign_in(await world.new_key(Permission.KEY_MANAGE, label="Blind"), "/keys")
    for page in ("Keys", "Audit log", "Activity", "Workspace"):
        await console.page.get_by_role("link", name=page).click()
        await expect(console.page.get_by_role("main")).to_contain_text("does not have the permission workspace.read")
    await console.page.get_by_role("link", name="Keys").click()
    await console.page.get_by_role("button", name="Create key").click()
    await dialog(console).get_by_label("key.manage").check()
    await dialog(console).get_by_label("Label").fill("Another")
    await dialog(console).get_by_role("button", name="Create key").click()
    await secret_shown(console)


async def test_trust_a_job_and_trust_it_no_longer(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill("notes")
    await console.sign_in(world.key, "/keys")
    await expect(page.get_by_role("main")).to_contain_text("No job is trusted.")
    await page.get_by_role("button", name="Trust a job").click()
    await dialog(console).get_by_label("Name").fill("Skills on main")
    await dialog(console).get_by_label("Skill").select_option(label="notes")
    await dialog(console).get_by_label("Issuer").fill("https://token.actions.githubusercontent.com")
    await dialog(console).get_by_label("Claims").fill("repository")
    assert await console.accessibility_problems() == []
    await dialog(console).get_by_role("button", name="Trust job").click()
    await expect(dialog(console)).to_contain_text("“repository” is not of the form name=value.")
    await dialog(console).get_by_label("Claims").fill("repository=acme/skills\n ref=refs/heads/* \n")
    await dialog(console).get_by_role("button", name="Trust job").click()
    await expect(dialog(console)).to_contain_text("qd trusted-jobs exchange")
    (job,) = (await world.get("/v1/trusted-jobs")).json()["items"]
    assert (job["skill_id"], job["claims"]) == (skill_id, {"repository": "acme/skills", "ref": "refs/heads/*"})
    await expect(dialog(console)).to_contain_text(f"qd trusted-jobs exchange {job['id']}")
    await dialog(console).get_by_role("button", name="Done").click()
    await expect(rows(console, "Skills on main")).to_contain_text("ref=refs/heads/*")
    await expect(rows(console, "Skills on main").get_by_role("link", name="notes")).to_be_visible()
    assert await console.accessibility_problems() == []
    await page.get_by_role("button", name="Remove Skills on main").click()
    await dialog(console).get_by_role("button", name="Remove job").click()
    await expect(page.get_by_role("main")).to_contain_text("No job is trusted.")
    assert (await world.get("/v1/trusted-jobs")).json()["items"] == []
