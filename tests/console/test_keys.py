"""Keys: created, rotated, revoked, by somebody who sees the page only."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Locator, Route, expect

from quarterdeck.core.actors import Permission
from quarterdeck.workspaces import service as workspaces
from tests.console.browser import NARROW, Visitor
from tests.world import World, error_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

# As often as api.js asks by itself.
TRIES = 4
SECRET = re.compile(r"qd_[a-z]+_[0-9A-Za-z]{20,}")


def dialog(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("dialog")


def rows(visitor: Visitor, label: str) -> Locator:
    return visitor.page.get_by_role("row").filter(has_text=label)


async def secret_shown(visitor: Visitor) -> str:
    """Taken by the button, as a person does; then the dialog is closed."""
    await expect(dialog(visitor)).to_contain_text("never again")
    shown = dialog(visitor).get_by_text(SECRET)
    await dialog(visitor).get_by_role("button", name="Copy the secret").click()
    await expect(dialog(visitor).get_by_role("status")).to_contain_text("Copied")
    copied: str = await visitor.page.evaluate("navigator.clipboard.readText()")
    assert copied == await shown.text_content()
    # One Escape too many must not lose it.
    await visitor.page.keyboard.press("Escape")
    await expect(shown).to_be_visible()
    await dialog(visitor).get_by_role("button", name="I have it").click()
    await expect(dialog(visitor)).to_have_count(0)
    return copied


async def test_a_key_is_created_rotated_and_revoked(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    await page.get_by_role("button", name="Create key").click()
    await dialog(visitor).get_by_label("Label").fill("Night shift")
    await dialog(visitor).get_by_label("workspace.read").uncheck()
    await dialog(visitor).get_by_role("button", name="Create key").click()
    await expect(dialog(visitor).get_by_role("alert")).to_contain_text("at least one permission")
    await expect(dialog(visitor).get_by_label("Label")).to_have_value("Night shift")
    await dialog(visitor).get_by_label("workspace.read").check()
    await dialog(visitor).get_by_label("Expires").select_option(label="In 30 days")
    assert await visitor.problems() == []
    await dialog(visitor).get_by_role("button", name="Create key").click()
    first = await secret_shown(visitor)
    row = rows(visitor, "Night shift")
    await expect(row).to_be_focused()
    await expect(row).to_contain_text(re.compile("in 4 weeks|in 1 month|in 30 days|next month"))
    await expect(row).to_contain_text("active")
    assert (await world.get("/v1/workspace", key=first)).status_code == 200

    await row.get_by_role("button", name="Rotate Night shift").click()
    await dialog(visitor).get_by_label("1 hour").check()
    assert await visitor.problems() == []
    await dialog(visitor).get_by_role("button", name="Rotate key").click()
    await expect(dialog(visitor)).to_contain_text(f"The old key {first[:16]}… goes on working until")
    second = await secret_shown(visitor)
    old, new = rows(visitor, f"{first[:16]}…"), rows(visitor, f"{second[:16]}…")
    await expect(old).to_contain_text("ends soon")
    await expect(new).to_contain_text("active")
    for secret in (first, second):
        assert (await world.get("/v1/workspace", key=secret)).status_code == 200

    await new.get_by_role("button", name="Revoke Night shift").click()
    await expect(dialog(visitor).get_by_role("heading")).to_have_text("Revoke “Night shift”?")
    await expect(dialog(visitor)).to_contain_text(f"{second[:16]}…")
    assert await visitor.problems() == []
    await dialog(visitor).get_by_role("button", name="Cancel").click()
    await expect(new).to_contain_text("active")
    await new.get_by_role("button", name="Revoke Night shift").click()
    await dialog(visitor).get_by_role("button", name="Revoke key").click()
    await expect(new).to_contain_text("revoked")
    await expect(new).to_be_focused()
    assert await new.get_by_role("button").count() == 0
    assert error_of(await world.get("/v1/workspace", key=second)) == (401, "unauthorized")
    # The page and the list agree.
    await page.reload()
    await expect(rows(visitor, "Night shift")).to_have_count(2)
    await expect(new).to_contain_text("revoked")


async def test_the_key_that_one_is_signed_in_with(visitor: Visitor, world: World) -> None:
    """Rotated, the tab goes on with the new one; revoked, it asks for another."""
    page = visitor.page
    await visitor.sign_in(await world.new_key(label="Mine"), "/keys")
    await rows(visitor, "signed in").get_by_role("button", name="Rotate Mine").click()
    await expect(dialog(visitor)).to_contain_text("You are signed in with this key")
    await dialog(visitor).get_by_label("Not at all").check()
    await dialog(visitor).get_by_role("button", name="Rotate key").click()
    await expect(dialog(visitor)).to_contain_text("has ended")
    secret = await secret_shown(visitor)
    await expect(rows(visitor, "signed in")).to_contain_text(secret[:16])
    await expect(page.locator(".who")).to_contain_text(secret[:16])
    await rows(visitor, "signed in").get_by_role("button", name="Revoke Mine").click()
    await expect(dialog(visitor)).to_contain_text("You are signed in with this key")
    await dialog(visitor).get_by_role("button", name="Revoke key").click()
    await visitor.heading("Sign in")


async def test_no_more_is_offered_than_may_be_given(visitor: Visitor, world: World) -> None:
    async with await world.connect() as connection:
        await workspaces.change_workspace(connection, world.workspace_id, max_key_days=40)
    held = (Permission.WORKSPACE_READ, Permission.KEY_MANAGE)
    ends = datetime.now(UTC) + timedelta(days=35)
    secret, _ = await world.new_key_record(held, ends, "Deputy")
    await visitor.page.set_viewport_size({"width": NARROW, "height": 800})
    await visitor.sign_in(secret, "/keys")
    await visitor.page.get_by_role("button", name="Create key").click()
    await expect(dialog(visitor).get_by_label("skill.manage")).to_be_disabled()
    await expect(dialog(visitor)).to_contain_text("Your own key lacks it")
    await expect(dialog(visitor)).to_contain_text("A key cannot outlive the one that you are signed in with.")
    choices = await dialog(visitor).get_by_label("Expires").locator("option").all_text_contents()
    assert [words.partition(":")[0] for words in choices] == [
        "In 7 days",
        "In 30 days",
        "As late as allowed",
        "On a date…",
    ]
    assert await visitor.overflow() <= 0
    assert await visitor.problems() == []
    await dialog(visitor).get_by_label("Label").fill("Short")
    await dialog(visitor).get_by_label("Expires").select_option("date")
    await dialog(visitor).get_by_label("Last day").fill((datetime.now(UTC) + timedelta(days=3)).date().isoformat())
    await dialog(visitor).get_by_role("button", name="Create key").click()
    await secret_shown(visitor)
    await expect(rows(visitor, "Short")).to_contain_text("ends soon")


async def test_a_secret_that_is_lost_on_the_way(visitor: Visitor, world: World) -> None:
    """The key is made, the answer does not arrive, however often the page asks. When the person asks again, it is the
    same request: there is no second key, and the answer does not hold the secret."""
    lost = 0

    async def lose(route: Route) -> None:
        nonlocal lost
        if route.request.method != "POST" or lost == TRIES:
            return await route.continue_()
        lost += 1
        if lost == 1:
            await route.fetch()
        return await route.abort()

    await visitor.page.route("**/v1/api-keys", lose)
    await visitor.sign_in(world.key, "/keys")
    await visitor.page.get_by_role("button", name="Create key").click()
    await dialog(visitor).get_by_label("Label").fill("Unlucky")
    await dialog(visitor).get_by_role("button", name="Create key").click()
    await expect(dialog(visitor).get_by_role("alert")).to_contain_text("cannot be reached")
    await dialog(visitor).get_by_role("button", name="Create key").click()
    await expect(dialog(visitor).get_by_role("heading", name="The secret was lost")).to_be_visible()
    keys = [key for key in (await world.list_keys()).json()["items"] if key["label"] == "Unlucky"]
    assert len(keys) == 1
    await expect(dialog(visitor)).to_contain_text("Revoke this key and create another.")
    await expect(dialog(visitor)).to_contain_text(keys[0]["id"])
    await dialog(visitor).get_by_role("button", name="I understand").click()
    await rows(visitor, "Unlucky").get_by_role("button", name="Revoke Unlucky").click()
    await dialog(visitor).get_by_role("button", name="Revoke key").click()
    await expect(rows(visitor, "Unlucky")).to_contain_text("revoked")


async def test_who_may_only_look_is_offered_nothing_else(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(await world.new_key(Permission.WORKSPACE_READ, label="Reader"), "/keys")
    await expect(rows(visitor, "Reader")).to_be_visible()
    assert await visitor.page.get_by_role("main").get_by_role("button").count() == 0


async def test_who_may_not_look_is_told_which_permission_is_missing(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(await world.new_key(Permission.KEY_MANAGE, label="Blind"), "/keys")
    for place in ("Keys", "Audit log", "Activity", "Workspace"):
        await visitor.page.get_by_role("link", name=place).click()
        await expect(visitor.page.get_by_role("main")).to_contain_text("It lacks the permission workspace.read")
    await visitor.page.get_by_role("link", name="Keys").click()
    await visitor.page.get_by_role("button", name="Create key").click()
    await dialog(visitor).get_by_label("key.manage").check()
    await dialog(visitor).get_by_label("Label").fill("Another")
    await dialog(visitor).get_by_role("button", name="Create key").click()
    await secret_shown(visitor)
