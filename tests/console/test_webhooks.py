"""The Webhooks pages: create, edit, rotate, test, redeliver, disable, delete."""

import re

import pytest
from playwright.async_api import Locator, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, ConsolePage
from tests.world import World

# No worker: the deliveries stay as the test sets them.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

URL = "https://hooks.example.com/quarterdeck"


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


async def secret_shown(console: ConsolePage) -> str:
    """Read the secret and close its dialog, which Escape does not."""
    shown = dialog(console).get_by_text(re.compile("^whsec_"))
    await expect(dialog(console)).to_contain_text("You won't be able to see it again.")
    await console.page.keyboard.press("Escape")
    secret = await shown.text_content()
    assert secret
    await dialog(console).get_by_role("button", name="I've saved this secret").click()
    await expect(dialog(console)).to_have_count(0)
    return secret


async def test_life_of_a_webhook(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/webhooks")
    await expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()
    await page.get_by_role("button", name="Create webhook").click()
    await dialog(console).get_by_label("URL").fill("http://10.0.0.1/")
    for event in ("run.cancelled", "action.required", "action.resolved"):
        await dialog(console).get_by_label(event).uncheck()
    await dialog(console).get_by_role("button", name="Create webhook").click()
    # A refused address keeps the form.
    await expect(dialog(console).get_by_role("alert")).to_be_visible()
    await dialog(console).get_by_label("URL").fill(URL)
    await dialog(console).get_by_role("button", name="Create webhook").click()
    first = await secret_shown(console)
    await console.heading(URL)
    (webhook,) = (await world.get("/v1/webhooks")).json()["items"]
    assert (webhook["url"], webhook["events"]) == (URL, ["run.succeeded", "run.failed"])
    path = f"/v1/webhooks/{webhook['id']}"

    await page.get_by_role("button", name="Edit").click()
    await dialog(console).get_by_label("Description").fill("Build status")
    await dialog(console).get_by_label("run.succeeded").uncheck()
    await dialog(console).get_by_label("run.failed").uncheck()
    await dialog(console).get_by_role("button", name="Save").click()
    await expect(dialog(console).get_by_role("alert")).to_contain_text("Select at least one event.")
    await dialog(console).get_by_label("run.failed").check()
    await dialog(console).get_by_role("button", name="Save").click()
    await console.heading("Build status")
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    changed = (await world.get(path)).json()
    assert (changed["description"], changed["events"]) == ("Build status", ["run.failed"])

    await page.get_by_role("button", name="Rotate secret").click()
    await dialog(console).get_by_label("1 hour").check()
    await dialog(console).get_by_role("button", name="Rotate secret").click()
    assert await secret_shown(console) != first
    await expect(page.get_by_role("main")).to_contain_text(re.compile("Old secretExpires in (1 hour|60 minutes)"))

    await page.get_by_role("button", name="Send test").click()
    row = page.get_by_role("row").filter(has_text="webhook.test")
    await expect(row).to_contain_text("Pending")
    await expect(row).to_contain_text("None yet")
    assert await row.get_by_role("button").count() == 0
    # The list updates itself while a delivery is pending.
    await world.execute(
        "UPDATE webhook_deliveries SET state = 'failed', attempts = 10, last_status = 503, last_error = 'HTTP 503',"
        " duration_ms = 84 WHERE webhook_id = %s",
        webhook["id"],
    )
    await expect(row).to_contain_text("Failed")
    await expect(row).to_contain_text("HTTP 503 · 84 ms")
    await page.get_by_label("Delivered").check()
    await expect(page.get_by_role("heading", name="No delivered deliveries")).to_be_visible()
    await page.get_by_label("Failed").check()
    assert page.url.endswith("?state=failed")
    await row.get_by_role("button", name="Redeliver webhook.test").click()
    await expect(page.get_by_role("status").filter(has_text="Redelivery scheduled.")).to_be_visible()
    await expect(row).to_have_count(0)
    await page.get_by_label("All").check()
    await expect(row).to_contain_text("Pending")
    await console.resize(NARROW)
    assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []

    await page.get_by_role("button", name="Disable").click()
    await dialog(console).get_by_role("button", name="Disable").click()
    await expect(page.get_by_text("It was disabled by a user.")).to_be_visible()
    await expect(page.get_by_role("button", name="Send test")).to_be_disabled()
    await world.execute(
        "UPDATE webhooks SET disabled_reason = 'The receiver is gone.' WHERE id = %s",
        webhook["id"],
    )
    await page.get_by_role("link", name="All webhooks").click()
    await expect(page.get_by_role("row").filter(has_text="Build status")).to_contain_text("Disabled automatically")
    await page.get_by_role("link", name="Build status").click()
    await expect(page.get_by_text("It was disabled automatically: The receiver is gone.")).to_be_visible()
    await page.get_by_role("button", name="Enable").click()
    await dialog(console).get_by_role("button", name="Enable").click()
    await expect(page.get_by_role("button", name="Send test")).to_be_enabled()
    await page.get_by_role("button", name="Delete").click()
    await dialog(console).get_by_role("button", name="Delete webhook").click()
    await expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()
    assert (await world.get(path)).status_code == 404


async def test_read_only_key_has_no_actions(console: ConsolePage, world: World) -> None:
    created = await world.post("/v1/webhooks", {"url": URL, "events": ["run.failed"]})
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/webhooks")
    await console.page.get_by_role("link", name=URL).click()
    await console.heading(URL)
    await expect(console.page.get_by_role("heading", name="No deliveries yet")).to_be_visible()
    buttons = console.page.get_by_role("main").get_by_role("button")
    assert await buttons.all_text_contents() == ["Copy", "Copy"]
    assert created.status_code == 201
