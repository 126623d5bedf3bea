"""Signing in at oidc-provider, over HTTP and in a browser."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.console.browser import HOST_WITHOUT_TLS, TIMEOUT_MS, chromium, launch_browser
from tests.openid.clients import SECRET
from tests.openid.real_provider import RealProvider, account, client, real_provider
from tests.openid.site import Site, Visitor, entry, role_of, site_server, write_providers
from tests.world import Server, World, free_port

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


def origins(port: int) -> list[str]:
    """The second one is another site than that of the provider, for a browser."""
    return [f"http://127.0.0.1:{port}", f"http://{HOST_WITHOUT_TLS}:{port}"]


@pytest.fixture(scope="module")
def real(port: int) -> Iterator[RealProvider]:
    callbacks = [f"{origin}/signed-in/corporate" for origin in origins(port)]
    registered = client("quarterdeck", *callbacks, secret=SECRET)
    registered["post_logout_redirect_uris"] = [f"{origin}/" for origin in origins(port)]
    with real_provider(registered, accounts={}) as provider:
        yield provider


@pytest.fixture(scope="module")
def own_server(
    site_database_url: str, folder: Path, port: int, real: RealProvider, site_worlds: list[World]
) -> Iterator[Server]:
    roles = [role_of("engineering", site_worlds[0], "admin"), role_of("design", site_worlds[1], "member")]
    write_providers(folder, {"corporate": entry(real.issuer, roles=roles)})
    with site_server(site_database_url, folder, port) as server:
        yield server


async def sign_in(visitor: Visitor, real: RealProvider, name: str) -> str:
    sent = await visitor.begin(return_to="/sessions")
    return await visitor.come_back(await asyncio.to_thread(real.sign_in, sent["url"], name))


async def test_a_person_comes_changes_and_leaves(site: Site, visitor: Visitor, real: RealProvider) -> None:
    first, second = str(site.world.workspace_id), str(site.other_world.workspace_id)
    real.set_account("ada", account("ada", "engineering"))
    assert await sign_in(visitor, real, "ada") == "/sessions"
    assert await visitor.roles() == {first: "admin"}
    profile = (await visitor.get("/v1/profile")).json()
    assert (profile["user"]["display_name"], profile["user"]["primary_email"]) == ("Ada", "ada@example.com")
    created = await visitor.post("/v1/api-keys", {"label": "own", "permissions": []}, **{"Service-Workspace": first})
    key = created.json()["secret"]
    real.set_account("ada", account("ada", "engineering", "design"))
    await site.refresh(visitor)
    assert await visitor.roles() == {first: "admin", second: "member"}
    real.set_account("ada", account("ada", "design"))
    await site.refresh(visitor)
    assert await visitor.roles() == {second: "member"}
    assert (await site.world.get("/v1/whoami", key=key)).status_code == 401
    real.remove_account("ada")
    await site.refresh(visitor)
    assert not await visitor.is_signed_in()


async def test_new_keys_and_sign_out_at_the_provider(site: Site, visitor: Visitor, real: RealProvider) -> None:
    real.set_account("bob", account("bob", "engineering"))
    await sign_in(visitor, real, "bob")
    real.rotate_keys(withdraw=True)
    await sign_in(visitor, real, "bob")
    answer = await visitor.post("/v1/sign-out")
    assert not await visitor.is_signed_in()
    assert await asyncio.to_thread(real.sign_out, answer.json()["end_session_url"]) == f"{site.origin}/"


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launch_browser(chromium()) as browser:
        yield browser


_FETCH = """
async ([method, path]) => {
  const answer = await fetch(path, {method, headers: {"Quarterdeck-Client": "quarterdeck-console/0.2.0"}});
  return [answer.status, await answer.json()];
}
"""


async def enter(page: Page, name: str) -> None:
    """At the provider."""
    await page.locator("input[name=login]").fill(name)
    await page.locator("input[name=password]").fill("any")
    await page.locator("button[type=submit]").click()
    await expect(page.locator("input[name=login]")).to_have_count(0)
    await page.locator("button[type=submit]").click()


async def test_in_a_browser(site: Site, port: int, browser: Browser, real: RealProvider) -> None:
    """The cookies of the way there and of the console survive the way over another site."""
    real.set_account("eve", account("eve", "engineering"))
    origin = origins(port)[1]
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    await page.goto(f"{origin}/#/skills")
    await page.get_by_role("button", name="Sign in with Example Corp").click()
    callbacks: list[str] = []
    page.on("request", lambda request: callbacks.append(request.url) if "/signed-in/" in request.url else None)
    await enter(page, "eve")
    await page.wait_for_url(f"{origin}/#/skills")
    status, whoami = await page.evaluate(_FETCH, ["GET", "/v1/whoami"])
    assert (status, whoami["kind"], whoami["user"]["primary_email"]) == (200, "device", "eve@example.com")
    (cookie,) = await context.cookies(origin)
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("quarterdeck", True, "Strict")
    # The page that remains in the history, and in another browser.
    (callback,) = callbacks
    other = await browser.new_context()
    elsewhere = await other.new_page()
    for one, address in ((page, "#/profile"), (elsewhere, "#/sign-in?problem=expired")):
        await one.goto(callback)
        await one.wait_for_url(f"{origin}/{address}")
        await expect(one.get_by_text("The sign-in took too long, was used before, or began in another")).to_be_visible()
    status, _ = await page.evaluate(_FETCH, ["GET", "/v1/whoami"])
    assert status == 200, "still signed in"
    await expect(page.get_by_role("button", name="Connect Example Corp")).to_be_visible()
    await page.locator(".account-button").click()
    await page.locator(".account-menu").get_by_text("Sign out").click()
    await page.get_by_role("button", name="Yes, sign me out").click()
    await page.wait_for_url(f"{origin}/")
    assert await context.cookies(origin) == []
