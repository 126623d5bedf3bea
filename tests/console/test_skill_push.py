"""Pushing skills from the browser: folders, archives, refusals, failing connections."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from quarterdeck.client.bundle_archive import pack_folder
from tests.client.faulty_proxy import Proxy, hangs, resets_after_the_effect, resets_at_once
from tests.client.test_bundle_archive import skill, write
from tests.console.browser import ConsolePage, open_console
from tests.world import Server, World, bundle

pytestmark = pytest.mark.asyncio(loop_scope="session")

# A synthetic drop event. It can contain files, but not folders.
DROP = """([zone, name, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""


async def drop(page: Page, name: str, content: bytes) -> None:
    zone = await page.get_by_role("region", name="Push a version").element_handle()
    await page.evaluate(DROP, [zone, name, list(content)])


async def drop_folder(page: Page, folder: Path) -> None:
    """A real drop through the DevTools protocol."""
    zone = page.get_by_role("region", name="Push a version")
    await zone.scroll_into_view_if_needed()
    box = await zone.bounding_box()
    assert box is not None
    devtools = await page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        await devtools.send(
            "Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 20, "y": box["y"] + 20, "data": data}
        )


async def choose(page: Page, folder: Path) -> None:
    async with page.expect_file_chooser() as opened:
        await page.get_by_role("button", name="Choose folder…").click()
    await (await opened.value).set_files(folder)


def archive(*members: tarfile.TarInfo) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member in members:
            tar.addfile(member)
    return gzip.compress(raw.getvalue(), mtime=0)


async def versions(world: World, skill_id: str) -> list[dict[str, Any]]:
    answer = await world.get(f"/v1/skills/{skill_id}/versions")
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.long
async def test_folder_is_packed_as_by_qd(console: ConsolePage, world: World, tmp_path: Path) -> None:
    page = console.page
    files: dict[str, str | bytes] = {
        "sub/deep/here": "x",
        "größe/日本語 𝒳.md": "y",
        "größe/\uffee": "before the astral character by bytes, after it by UTF-16",
        "größe/𝒳": "y",
        "d" * 90 + "/" + "n" * 90: bytes(range(256)) * 5,
        "empty": "",
        "block": "b" * 512,
        "run.sh": "#!/bin/sh\n",
    }
    folder = skill(tmp_path / "greeting", **files)
    with pack_folder(folder) as packed:
        expected = gzip.decompress(packed.read())
    # Never packed by the browser.
    write(
        folder,
        {".git/HEAD": "x", "node_modules/a/b.js": "x", "sub/__pycache__/a.pyc": "x", "old.pyc": "x", ".env": "x"},
    )
    await console.sign_in(world.key, "/skills")
    await expect(page.get_by_role("heading", name="No skills yet")).to_be_visible()
    await choose(page, folder)
    dialog = page.get_by_role("dialog", name="New skill")
    await expect(dialog.get_by_text("greeting: 9 files, 1.9 KB (5 skipped)")).to_be_visible()
    # The name in SKILL.md, not the name of the folder.
    await expect(dialog.get_by_label("Name")).to_have_value("demo")
    await dialog.get_by_role("button", name="Create and push").click()
    await console.heading("demo")
    await expect(page.get_by_text("Version 1 pushed")).to_be_visible()
    await expect(page.locator(".push-result")).to_be_focused()

    skill_id = (await world.get("/v1/skills")).json()["items"][0]["id"]
    archive_bytes = (await world.get(f"/v1/skills/{skill_id}/versions/1/bundle")).content
    assert gzip.decompress(archive_bytes) == expected
    assert archive_bytes[4:8] == bytes(4), "the gzip header must not contain a time"


@pytest.mark.long
async def test_folder_of_an_existing_skill_is_offered_as_a_new_version(
    console: ConsolePage, world: World, tmp_path: Path
) -> None:
    page = console.page
    skill_id = await world.new_skill("demo")
    await world.push(skill_id, bundle())
    await console.sign_in(world.key, "/skills")
    await expect(page.get_by_role("row", name="demo")).to_contain_text("Latest (auto-update)")
    await choose(page, skill(tmp_path / "copy"))
    dialog = page.get_by_role("dialog", name="“demo” already exists")
    await expect(dialog.get_by_label("Push as version 2 of demo")).to_be_checked()
    assert await console.accessibility_problems() == []
    # Another skill needs another name.
    await dialog.get_by_label("Create another skill").check()
    await dialog.get_by_label("Name").fill("demo")
    await dialog.get_by_role("button", name="Push").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("A skill with this name already exists.")
    await dialog.get_by_label("Push as version 2 of demo").check()
    await dialog.get_by_role("button", name="Push").click()
    await console.heading("demo")
    await expect(page.get_by_text("Version 2 pushed")).to_be_visible()
    assert [one["version"] for one in await versions(world, skill_id)] == [2, 1]

    await console.load("/skills")
    await choose(page, skill(tmp_path / "other"))
    await dialog.get_by_label("Create another skill").check()
    await dialog.get_by_label("Name").fill("demo-two")
    await dialog.get_by_role("button", name="Push").click()
    await console.heading("demo-two")
    await expect(page.get_by_text("Version 1 pushed")).to_be_visible()


@pytest.mark.long
async def test_ignore_files_are_pushed_with_a_warning(console: ConsolePage, world: World, tmp_path: Path) -> None:
    page = console.page
    skill_id = await world.new_skill("demo")
    await console.sign_in(world.key, f"/skills/{skill_id}")
    await choose(page, skill(tmp_path / "plain"))
    await expect(page.get_by_role("button", name="Push", exact=True)).to_be_visible()
    await expect(page.get_by_text("Ignore files are not read in the browser")).to_have_count(0)
    await page.get_by_role("button", name="Choose another").click()
    await choose(page, skill(tmp_path / "ignoring", **{".gitignore": "*.log\n", "kept.log": "x"}))
    await expect(page.get_by_text("Ignore files are not read in the browser")).to_be_visible()
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("Version 1 pushed: 3 files")).to_be_visible()
    files = (await world.get(f"/v1/skills/{skill_id}/versions/1")).json()["manifest"]["files"]
    assert [file["path"] for file in files] == [".gitignore", "SKILL.md", "kept.log"]


@pytest.mark.long
async def test_archive_is_pushed_or_refused_with_a_reason(console: ConsolePage, world: World, tmp_path: Path) -> None:
    page = console.page
    skill_id = await world.new_skill("demo")
    await console.sign_in(world.key, f"/skills/{skill_id}")
    await expect(page.get_by_role("heading", name="No versions")).to_be_visible()

    await drop(page, "demo.tar.gz", bundle(notes="n"))
    await expect(page.get_by_role("heading", name="Archive demo.tar.gz")).to_be_visible()
    await expect(page.get_by_role("button", name="Push", exact=True)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="Version 1")).to_contain_text("In use")
    (version,) = await versions(world, skill_id)
    assert (await world.get(f"/v1/skills/{skill_id}/versions/1/bundle")).content == bundle(notes="n")
    assert version["version"] == 1

    link = tarfile.TarInfo("evil/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    reasons = {
        "SKILL.md": archive(tarfile.TarInfo("README.md")),
        '"evil/link"': archive(link),
        '"../up"': archive(tarfile.TarInfo("../up")),
        "line 4": bundle(**{"SKILL.md": "---\nname: demo\ndescription: [\n---\n"}),
        "gzip": b"PK\x03\x04",
    }
    for reason, content in reasons.items():
        await drop(page, "demo.tgz", content)
        await page.get_by_role("button", name="Push", exact=True).click()
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text(reason)
        await expect(page.get_by_role("button", name="Retry push")).to_be_focused()
        assert await console.accessibility_problems() == []
        await page.get_by_role("button", name="Choose another").click()
        await expect(page.get_by_role("button", name="Choose folder…")).to_be_focused()
    assert len(await versions(world, skill_id)) == 1

    # Refused without a request to the server.
    await choose(page, write(tmp_path, {"a/b/SKILL.md": "x", "c": "x"}))
    await expect(page.get_by_role("alert")).to_contain_text("Found a/b/SKILL.md: choose its folder instead.")
    full = {f"many/{number}": "x" for number in range(250)}
    await drop_folder(page, skill(tmp_path / "full", **full))
    await expect(page.get_by_text("251 files, ")).to_be_visible()
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("Version 2 pushed: 251 files")).to_be_visible()
    # A single SKILL.md is a skill too.
    await drop(page, "SKILL.md", b"---\nname: demo\ndescription: d\n---\n")
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("Version 3 pushed: 1 file")).to_be_visible()


@pytest.mark.long
async def test_push_over_a_failing_connection_creates_one_version(
    browser: Browser, server: Server, world: World
) -> None:
    skill_id = await world.new_skill("demo")
    async with Proxy(server, []).running() as proxy, open_console(browser, proxy.url) as console:
        page = console.page
        await console.sign_in(world.key, f"/skills/{skill_id}")
        await expect(page.get_by_role("heading", name="No versions")).to_be_visible()
        await drop(page, "demo.tar.gz", bundle())
        proxy.requests.clear()
        proxy.script.append(resets_after_the_effect)
        await page.get_by_role("button", name="Push", exact=True).click()
        await expect(page.get_by_text("Version 1 pushed")).to_be_visible()
        keys = [key for key in proxy.headers("Idempotency-Key") if key]
        assert len(keys) == 2
        assert len(set(keys)) == 1

        # All attempts fail; the user tries again.
        await drop(page, "demo.tar.gz", bundle(more="x"))
        proxy.script.extend([resets_at_once] * 5)
        await page.get_by_role("button", name="Push", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
        await page.get_by_role("button", name="Retry push").click()
        await expect(page.get_by_text("Version 2 pushed")).to_be_visible()

        # Stopped after the server has received it.
        await drop(page, "demo.tar.gz", bundle(third="x"))
        proxy.script.append(hangs)
        await page.get_by_role("button", name="Push", exact=True).click()
        await expect(page.get_by_text("Processing…")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("Upload stopped.")).to_be_visible()
        await page.get_by_role("button", name="Retry push").click()
        await expect(page.get_by_text("Version 3 pushed")).to_be_visible()
    assert [one["version"] for one in await versions(world, skill_id)] == [3, 2, 1]
