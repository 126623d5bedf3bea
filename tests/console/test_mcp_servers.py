"""The pages of MCP servers and credentials."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, WIDE, ConsolePage, open_console
from tests.mcp_server import mcp_server
from tests.workers import at_rest, working
from tests.world import CLOSED_MCP_URL, Server, World, serving

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

SECRET = "planted-secret-of-the-console"


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


async def test_life_of_a_server_and_its_credential(
    browser: Browser, server: Server, world: World, tmp_path: Path
) -> None:
    """Processes that allow the address of a real MCP server."""
    with mcp_server() as mcp:
        allowed = {"MCP_ALLOWED_ADDRESSES": mcp.url.removeprefix("http://").removesuffix("/mcp")}
        with (
            serving(server.database_url, tmp_path, **allowed) as allowing,
            working(server.database_url, tmp_path, **allowed),
        ):
            async with open_console(browser, allowing.url) as console:
                await _create_credentials(console, world)
                await _add_server(console, world, mcp.url)
                page = console.page
                tools = page.get_by_role("list", name="Tools").get_by_role("listitem")
                await expect(tools).to_have_count(5)
                echo = tools.filter(has_text="everything__echo")
                await expect(echo).to_contain_text("Claims to only read")
                await expect(tools.filter(has_text="everything__slow")).not_to_contain_text("Claims to only read")
                await echo.get_by_text("everything__echo").click()
                await expect(echo).to_contain_text("Quarterdeck cannot verify it")
                await expect(echo).to_contain_text('"required"')
                await mcp.change("Sends the text to everybody.")
                await page.get_by_role("button", name="Check", exact=True).click()
                await expect(page.get_by_text("Changed: echo")).to_be_visible()
                await expect(echo).to_contain_text("Sends the text to everybody.")
                await console.resize(NARROW)
                assert await console.overflow() <= 0
                assert await console.accessibility_problems() == []
                await console.resize(WIDE)
                await _call_a_tool(console, world)
                # Nobody listens there.
                mcp.process.kill()
                mcp.process.wait()
                await page.get_by_role("button", name="Check", exact=True).click()
                await expect(page.get_by_text("The last check failed: ")).to_be_visible()
                await expect(tools).to_have_count(5)
                await _delete(console, world)


async def _create_credentials(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/credentials")
    await expect(page.get_by_role("heading", name="No credentials yet")).to_be_visible()
    await page.get_by_role("button", name="Create credential").click()
    await dialog(console).get_by_label("Name").fill("Ticket system")
    await dialog(console).get_by_label("Kind").select_option("OAuth client credentials")
    for label in ("Token endpoint", "Client ID", "Scope", "Audience", "Client secret"):
        await expect(dialog(console).get_by_label(label)).to_be_visible()
    await dialog(console).get_by_label("Kind").select_option("Header")
    await dialog(console).get_by_label("Header", exact=True).fill("X-Api-Key")
    secret = dialog(console).get_by_label("Value of the header")
    await expect(secret).to_have_attribute("type", "password")
    await secret.fill(SECRET)
    await dialog(console).get_by_role("button", name="Create credential").click()
    row = page.get_by_role("row").filter(has_text="Ticket system")
    await expect(row).to_contain_text("X-Api-Key")
    await expect(row).to_contain_text("Never")
    await page.get_by_role("button", name="Rotate Ticket system").click()
    await dialog(console).get_by_label("Value of the header").fill(f"{SECRET}-2")
    await dialog(console).get_by_role("button", name="Rotate").click()
    await expect(row).not_to_contain_text("Never")
    assert SECRET not in await page.content()
    (credential,) = (await world.get("/v1/credentials")).json()["items"]
    assert (credential["kind"], credential["header"]) == ("header", "X-Api-Key")


async def _add_server(console: ConsolePage, world: World, url: str) -> None:
    page = console.page
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="MCP servers").click()
    await expect(page.get_by_role("heading", name="No MCP servers yet")).to_be_visible()
    await page.get_by_role("button", name="Add MCP server").click()
    await dialog(console).get_by_label("Name").fill("everything")
    await dialog(console).get_by_label("stdio").check()
    await dialog(console).get_by_label("Command").fill("no such command")
    await dialog(console).get_by_role("button", name="Add server").click()
    await _expect_error_at(dialog(console).get_by_label("Command"), "command must be the name of a command")
    await dialog(console).get_by_label("Streamable HTTP").check()
    await dialog(console).get_by_label("URL").fill("http://10.0.0.1/mcp")
    await dialog(console).get_by_role("button", name="Add server").click()
    await _expect_error_at(dialog(console).get_by_label("URL"), "url must start with https://.")
    await expect(dialog(console).get_by_role("alert")).to_have_count(1)
    assert await console.accessibility_problems() == []
    await dialog(console).get_by_label("URL").fill(url)
    await dialog(console).get_by_label("Credential").select_option("Ticket system")
    await dialog(console).get_by_role("button", name="Add server").click()
    await console.heading("everything")
    main = page.get_by_role("main")
    await expect(main).to_contain_text("Ticket system")
    await expect(page.get_by_text("Connected: 5 tools.")).to_be_visible()
    await expect(page.get_by_role("button", name="Check", exact=True)).to_be_focused()
    await page.get_by_role("button", name="Edit").click()
    await expect(dialog(console).get_by_label("Credential")).to_have_value(re.compile("[0-9a-f-]{36}"))
    await dialog(console).get_by_label("Credential").select_option("None")
    async with page.expect_request(lambda request: request.method == "PATCH") as request:
        await dialog(console).get_by_role("button", name="Save").click()
    assert (await request.value).post_data_json == {"credential_id": None}
    await expect(main).not_to_contain_text("Ticket system")


async def _expect_error_at(control: Locator, text: str) -> None:
    await expect(control).to_be_focused()
    await expect(control).to_have_accessible_error_message(re.compile(text))


async def _call_a_tool(console: ConsolePage, world: World) -> None:
    page = console.page
    server_page = page.url.split("#")[1]
    session = await world.post("/v1/sessions", {"mcp_servers": [server_page.rsplit("/", 1)[1]]})
    session_id = session.json()["id"]
    await world.submit(session_id, 'call: everything__echo {"text": "hello"}')
    await console.load("/inbox")
    await page.get_by_role("button", name="everything__echo").click()
    reason = "of the MCP server everything (the server says that it only reads"
    await expect(page.get_by_role("region", name="Approval required: everything__echo")).to_contain_text(reason)
    await page.get_by_role("button", name="Allow", exact=True).click()
    await at_rest(world, session_id)
    await world.submit(session_id, "call: everything__image {}")
    await console.load(f"/sessions/{session_id}")
    await page.get_by_role("button", name="Allow", exact=True).click()
    await expect(page.get_by_text("✓ Completed")).to_have_count(2)
    await page.locator("summary").filter(has_text="everything__image").click()
    await expect(page.get_by_text(re.compile(r"^\s*image/png, \d+ bytes"))).to_be_visible()
    await expect(page.get_by_role("complementary")).to_contain_text("everything")
    await console.load(server_page)


async def _delete(console: ConsolePage, world: World) -> None:
    page = console.page
    (credential,) = (await world.get("/v1/credentials")).json()["items"]
    (server,) = (await world.get("/v1/mcp-servers")).json()["items"]
    await world.execute("UPDATE mcp_servers SET credential_id = %s WHERE id = %s", credential["id"], server["id"])
    await console.load("/credentials")
    await page.get_by_role("button", name="Delete Ticket system").click()
    await dialog(console).get_by_role("button", name="Delete credential").click()
    await expect(dialog(console).get_by_role("alert")).to_contain_text("An MCP server uses this credential.")
    await page.keyboard.press("Escape")
    await console.load("/mcp-servers")
    row = page.get_by_role("row").filter(has_text="everything")
    await expect(row).to_contain_text("Failed")
    await row.get_by_role("link", name="everything").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await dialog(console).get_by_role("button", name="Delete server").click()
    await expect(page.get_by_role("heading", name="No MCP servers yet")).to_be_visible()
    await console.load("/credentials")
    await page.get_by_role("button", name="Delete Ticket system").click()
    await dialog(console).get_by_role("button", name="Delete credential").click()
    await expect(page.get_by_role("heading", name="No credentials yet")).to_be_visible()
    assert (await world.get("/v1/credentials")).json()["items"] == []


async def test_read_only_key_has_no_actions(console: ConsolePage, world: World) -> None:
    page = console.page
    await world.new_credential(name="Token")
    server_id = await world.new_mcp_server(name="closed")
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/credentials")
    await expect(page.get_by_role("row").filter(has_text="Token")).to_be_visible()
    buttons = page.get_by_role("main").get_by_role("button")
    assert await buttons.count() == 0
    await console.load(f"/mcp-servers/{server_id}")
    await expect(page.get_by_role("main")).to_contain_text(CLOSED_MCP_URL)
    assert await buttons.all_text_contents() == ["Copy", "Copy"]
