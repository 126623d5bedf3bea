"""Navigation and the command palette."""

import pytest
from playwright.async_api import expect

from quarterdeck.core.actors import Permission
from tests.console.browser import ConsolePage
from tests.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_command_palette(console: ConsolePage, world: World) -> None:
    page = console.page
    session = (await world.post("/v1/sessions", {"title": "Invoices of March"})).json()
    skill = (await world.post("/v1/skills", {"name": "invoice-check"})).json()
    assert (await world.post("/v1/agents", {"name": "Invoice clerk"})).status_code == 201
    await console.sign_in(world.key, "/keys")
    await console.heading("API keys")
    await page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Command palette")
    field = palette.get_by_role("combobox")
    options = palette.get_by_role("option")
    selected = palette.get_by_role("option", selected=True)
    await expect(field).to_be_focused()
    await expect(palette.get_by_role("group", name="Recent sessions")).to_contain_text("Invoices of March")
    await expect(selected).to_have_text("Sessions")
    await page.keyboard.press("ArrowDown")
    await expect(selected).to_have_text("Inbox")
    selected_id = await selected.get_attribute("id")
    assert selected_id
    await expect(field).to_have_attribute("aria-activedescendant", selected_id)
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect(selected).to_have_text(await options.last.inner_text())
    assert await console.accessibility_problems() == []
    await page.keyboard.press("Escape")
    await expect(palette).to_have_count(0)

    await page.get_by_role("button", name="Search").click()
    await page.keyboard.type("invoi")
    await expect(options).to_have_text(["Invoices of March", "Invoice clerk", "invoice-check"])
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await console.heading("invoice-check")
    assert page.url.endswith(f"#/skills/{skill['id']}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("march")
    # Before the answer of the search.
    await page.keyboard.press("Enter")
    await console.heading("Invoices of March")
    assert page.url.endswith(f"#/sessions/{session['id']}")

    for command, title in (
        ("new session", "New session"),
        ("new skill", "New skill"),
        ("mcp add", "Add MCP server"),
        ("create cred", "Create credential"),
        ("create key", "Create key"),
        ("webhook cre", "Create webhook"),
    ):
        await page.keyboard.press("Control+k")
        await page.keyboard.type(command)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name=title)).to_be_visible()
        # The palette does not open over another dialog.
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("dialog")).to_have_count(1)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("no such thing")
    await expect(palette.get_by_role("status")).to_have_text("No results")
    await field.fill("sign")
    await expect(selected).to_have_text("Sign out")
    await page.keyboard.press("Enter")
    await console.heading("Sign in")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_actions_without_permission_are_not_offered(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/keys")
    for name, target in (("Documentation", "/docs"), ("API reference", "docs")):
        address = await page.get_by_role("link", name=name).get_attribute("href")
        assert address
        assert address.endswith(target)
    await page.keyboard.press("Control+k")
    actions = page.get_by_role("dialog").get_by_role("group", name="Actions").get_by_role("option")
    await expect(actions).to_have_text(["Sign out"])
