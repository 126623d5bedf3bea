"""The API reference at /docs: Swagger UI, under a policy without inline scripts and styles. The fixture fails if the
page violates its policy or sends a request to another host."""

import pytest
from playwright.async_api import expect

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, ConsolePage
from tests.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_operation_is_shown_also_on_a_narrow_screen(console: ConsolePage) -> None:
    page = console.page
    await page.goto(f"{console.url}/docs")
    for operation in OPERATIONS:
        shown = page.locator(f"[id^=operations-][id$='-{operation.name}']")
        await expect(shown).to_contain_text(operation.summary)
    await console.resize(NARROW)
    assert await console.overflow() <= 0


async def test_an_operation_shows_its_parameters_errors_and_what_to_do(console: ConsolePage) -> None:
    page = console.page
    await page.goto(f"{console.url}/docs")
    shown = page.locator("#operations-Sessions-submit_input")
    await shown.get_by_role("button").first.click()
    parameters = ("session_id", "Idempotency-Key", "Service-Workspace")
    permission = "Needs a key with session.manage, or a token of the session."
    for text in (permission, *parameters, "200", "409", "Use a new key for a new request."):
        await expect(shown).to_contain_text(text)


@pytest.mark.long
async def test_a_request_can_be_tried(console: ConsolePage, world: World) -> None:
    page = console.page
    key = await world.new_key(Permission.WORKSPACE_READ)
    await page.goto(f"{console.url}/docs#/Caller/whoami")
    await page.get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".dialog-ux")
    await dialog.get_by_label("Value").first.fill(key)
    await dialog.get_by_role("button", name="Apply credentials").first.click()
    await dialog.get_by_role("button", name="Close").first.click()
    shown = page.locator("#operations-Caller-whoami")
    await shown.get_by_role("button", name="Try it out").click()
    await shown.get_by_role("button", name="Execute").click()
    await expect(shown.locator(".curl-command")).to_contain_text("/v1/whoami")
    await expect(shown.locator(".live-responses-table")).to_contain_text("workspace.read")
