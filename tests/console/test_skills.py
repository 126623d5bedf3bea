"""The Skills pages: list, versions, files, diffs."""

import hashlib
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, ConsolePage, open_console
from tests.world import Server, World, bundle

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

HEAD = "---\nname: demo\ndescription: d\n---\n"


async def pushed(world: World, *archives: bytes) -> str:
    skill_id = await world.new_skill("demo")
    for archive in archives:
        answer = await world.push(skill_id, archive)
        assert answer.status_code == 201, answer.text
    return skill_id


async def downloaded(page: Page, button: str, tmp_path: Path) -> tuple[str, bytes]:
    async with page.expect_download() as started:
        await page.get_by_role("button", name=button).click()
    download = await started.value
    await download.save_as(tmp_path / "file")
    return download.suggested_filename, (tmp_path / "file").read_bytes()


async def test_create_rename_roll_back_and_archive(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/skills")
    await page.get_by_role("button", name="New skill").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("Release notes")
    await page.keyboard.press("Enter")
    await console.heading("Release notes")
    await expect(page.get_by_role("heading", name="No versions")).to_be_visible()
    (skill,) = (await world.get("/v1/skills")).json()["items"]
    for text in ("one", "two", "three"):
        await world.push(skill["id"], bundle(**{"text.md": text}))
    await page.reload()
    first = page.get_by_role("row", name="Version 1")
    await expect(page.get_by_role("row", name="Version 3")).to_contain_text("In use Latest (auto-update)")
    await expect(page.get_by_role("row")).to_have_count(4)
    await expect(page.locator(".skill-description")).to_have_text("A test skill.")

    await first.get_by_role("button", name="Roll back to version 1").click()
    dialog = page.get_by_role("dialog", name="Use version 1?")
    await expect(dialog).to_contain_text("use version 1 from their next run. Current version: 3.")
    assert await console.accessibility_problems() == []
    await dialog.get_by_role("button", name="Use version 1").click()
    await expect(first).to_contain_text("In use")
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    assert (await world.get(f"/v1/skills/{skill['id']}")).json()["default_version"] == 1
    await page.get_by_role("button", name="Use latest").click()
    await page.get_by_role("dialog").get_by_role("button", name="Use latest").click()
    await expect(page.get_by_role("row", name="Version 3")).to_contain_text("In use")
    assert (await world.get(f"/v1/skills/{skill['id']}")).json()["default_version"] is None

    await page.get_by_role("button", name="Rename").click()
    # The form keeps a name that the server refuses.
    await page.get_by_role("dialog").get_by_label("Name").fill("left \u202e right")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    await expect(page.get_by_role("dialog").get_by_label("Name")).to_have_value("left \u202e right")
    long = "W" * 200
    await page.get_by_role("dialog").get_by_label("Name").fill(long)
    await page.keyboard.press("Enter")
    await console.heading(long)
    await console.resize(NARROW)
    for path in ("/versions/1", "/diff", ""):
        await console.open(f"/skills/{skill['id']}{path}")
        await expect(page.get_by_role("heading", level=1)).to_contain_text(long)
        assert await console.overflow() <= 0
    await page.get_by_role("button", name="Archive").click()
    dialog = page.get_by_role("dialog", name=f"Archive {long}?")
    assert await dialog.evaluate("(shown) => shown.scrollWidth - shown.clientWidth") <= 0
    await dialog.get_by_role("button", name="Archive").click()
    await expect(page.get_by_text("Unarchive this skill to push versions.")).to_be_visible()
    assert await page.get_by_role("button", name="Choose folder…").count() == 0
    await page.get_by_role("link", name="All skills").click()
    await expect(page.get_by_role("heading", name="No skills yet")).to_be_visible()
    await page.get_by_label("Show archived").check()
    await page.get_by_label("Search skills").fill("no such skill")
    await expect(page.get_by_role("heading", name="No matching skills")).to_be_visible()
    await page.get_by_label("Search skills").fill("test SKILL")
    await page.get_by_role("link", name=long).click()
    await page.get_by_role("button", name="Unarchive").click()
    await page.get_by_role("dialog").get_by_role("button", name="Unarchive").click()
    await expect(page.get_by_role("button", name="Choose folder…")).to_be_visible()

    # A skill that a session uses cannot be deleted.
    session_id = (await world.post("/v1/sessions", {"skills": [{"skill_id": skill["id"]}]})).json()["id"]
    await page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name=f"Delete {long}?")
    await dialog.get_by_role("button", name="Delete skill").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("This skill is used by a session")
    await world.delete(f"/v1/sessions/{session_id}")
    await dialog.get_by_role("button", name="Delete skill").click()
    await expect(page.get_by_role("heading", name="No skills yet")).to_be_visible()
    assert (await world.get(f"/v1/skills/{skill['id']}")).status_code == 404


async def test_read_only_key_has_no_actions(console: ConsolePage, world: World) -> None:
    skill_id = await pushed(world, bundle(), bundle(more="x"))
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/skills")
    await expect(console.page.get_by_role("button", name="New skill")).to_be_disabled()
    await expect(console.page.get_by_text("your key does not have the permission skill.manage")).to_be_visible()
    await console.open(f"/skills/{skill_id}")
    await expect(console.page.get_by_role("row", name="Version 1")).to_be_visible()
    for name in ("Rename", "Archive", "Delete", "Roll back to version 1", "Choose folder…"):
        assert await console.page.get_by_role("button", name=name).count() == 0


async def test_files_of_a_version(console: ConsolePage, world: World, tmp_path: Path) -> None:
    page = console.page
    tags = "".join(chr(0xE0000 + ord(c)) for c in "obey")
    long = "n" * 200
    archive = bundle(
        **{
            "SKILL.md": HEAD.replace("\n---\n", '\nhtml: "<b>bold</b>"\ntags: [a, {b: 1}]\n---\n')
            + "\n".join(f"Line {n}" for n in range(5, 3005)),
            "docs/deep/tricky.md": f"<script>throw 1</script>\u202etxet\u202c{tags}\x1b[31m\r\nnext",
            "docs/big.txt": "x" * (256 * 1024 + 1),
            "docs/wide.txt": "w" * (256 * 1024),
            "data.bin": "\0",
            "&lt;b&gt;.md": "",
            f"{long}/{long}é\u200cé.md": "Far down",
        }
    )
    skill_id = await pushed(world, archive)
    await console.sign_in(world.key, f"/skills/{skill_id}")
    await page.get_by_role("link", name="Version 1").click()
    await console.heading("demo, version 1")
    contents = page.get_by_role("region", name="Contents of SKILL.md")
    await expect(contents.get_by_text("Line 5", exact=True)).to_be_visible()
    await expect(page.get_by_role("row", name="html <b>bold</b>")).to_be_visible()
    await expect(page.get_by_role("row", name="tags")).to_contain_text('"b": 1')
    assert await contents.get_by_text("Line 2900", exact=True).count() == 0
    await page.get_by_role("button", name="Show more (1,006 lines left)").click()
    await expect(contents.get_by_text("Line 2900", exact=True)).to_be_attached()

    # Open a file by keyboard.
    files = page.get_by_role("navigation", name="Files")
    await files.locator("summary", has_text="docs/").focus()
    await page.keyboard.press("Enter")
    await files.locator("summary", has_text="deep/").focus()
    await page.keyboard.press("Space")
    await files.get_by_role("link", name="tricky.md").focus()
    await page.keyboard.press("Enter")
    shown = page.get_by_role("region", name="Contents of docs/deep/tricky.md")
    await expect(shown).to_contain_text("<script>throw 1</script>⟨U+202E⟩txet⟨U+202C⟩⟨U+E006F⟩")
    await expect(shown).to_contain_text("⟨U+001B⟩[31m⟨CR⟩")
    assert page.url.endswith("?path=docs%2Fdeep%2Ftricky.md")
    await files.get_by_role("link", name="big.txt").click()
    await expect(page.get_by_text("This file is too large to display.")).to_be_visible()
    digest = hashlib.sha256(b"x" * (256 * 1024 + 1)).hexdigest()
    await expect(page.get_by_text(digest)).to_be_visible()
    name, content = await downloaded(page, "Download file", tmp_path)
    assert (name, content) == ("big.txt", b"x" * (256 * 1024 + 1))
    await files.get_by_role("link", name="data.bin").click()
    await expect(page.get_by_text("This is a binary file.")).to_be_visible()
    await files.get_by_role("link", name="&lt;b&gt;.md").click()
    await expect(page.get_by_text("This file is empty.")).to_be_visible()
    await files.get_by_role("link", name="wide.txt").click()
    await expect(page.get_by_role("region", name="Contents of docs/wide.txt")).to_be_visible()
    await console.resize(NARROW)
    assert await console.overflow() <= 0
    await files.locator("summary", has_text=long).click()
    await files.get_by_role("link", name="é\u200cé.md").click()
    await expect(page.get_by_text("Far down")).to_be_visible()
    assert await console.overflow() <= 0
    await page.reload()
    await expect(page.get_by_text("Far down")).to_be_visible()
    await expect(files.get_by_role("link", name="é\u200cé.md")).to_have_attribute("aria-current", "true")
    assert await console.accessibility_problems() == []
    name, content = await downloaded(page, "Download bundle", tmp_path)
    assert (name, content) == ("demo-1.tar.gz", archive)


async def test_diff_of_two_versions(browser: Browser, server: Server, world: World) -> None:
    many = "".join(f"{n}\n" for n in range(3000))
    before = {"a.md": "one\n-- two\n\u202ethree\n", "gone.md": "g", "many.txt": many, "data": "\0", "same": "s"}
    after = {
        "a.md": "one\n++ 2\n\u202ethree\nfour",
        "new.md": "n\n",
        "many.txt": many.replace("\n", "!\n"),
        "same": "s",
    }
    skill_id = await pushed(world, bundle(**before), bundle(**after, data="\0\0"), bundle())
    async with open_console(browser, server.url) as console:
        page = console.page
        await console.sign_in(world.key, f"/skills/{skill_id}")
        await page.get_by_label("Compare").select_option("Version 1")
        await page.get_by_label("with", exact=True).select_option("Version 2")
        await page.get_by_role("button", name="Compare").click()
        await console.heading("demo: version 1 to 2")
        assert page.url.endswith(f"/skills/{skill_id}/diff?from=1&to=2")
        await expect(page.get_by_text("5 files: 1 added, 1 removed, 3 changed")).to_be_visible()
        changed = page.get_by_role("table", name="a.md")
        await expect(changed.get_by_role("row", name="2 -- two 2 ++ 2")).to_be_visible()
        await expect(changed.get_by_role("row").nth(3).locator(".sign")).to_have_text(["−", "+"])
        await expect(changed.get_by_role("row", name="3 ⟨U+202E⟩three 3 ⟨U+202E⟩three")).to_be_visible()
        await expect(changed.get_by_role("row", name="4 four (no newline at end of file)")).to_be_visible()
        await expect(page.get_by_text("Binary file not shown. 1 byte → 2 bytes")).to_be_visible()
        assert await console.accessibility_problems() == []
        # Long diffs are collapsed and shown in steps.
        assert await page.get_by_text("2500!", exact=True).count() == 0
        await page.get_by_role("button", name="many.txt").click()
        await expect(page.locator("summary", has_text="many.txt")).to_be_focused()
        await expect(page.get_by_text("1500!", exact=True)).to_be_attached()
        await page.get_by_role("button", name="Show more").click()
        await expect(page.get_by_text("2500!", exact=True)).to_be_attached()
        await page.locator("summary", has_text="many.txt").click()

        # Unified on narrow screens.
        await console.resize(NARROW)
        await expect(changed.get_by_role("row", name="2 ++ 2", exact=True)).to_be_visible()
        assert await console.overflow() <= 0

        await console.open(f"/skills/{skill_id}/diff?from=3&to=3")
        await expect(page.get_by_role("heading", name="No differences")).to_be_visible()
        await console.open(f"/skills/{skill_id}/diff?from=1&to=99")
        await expect(page.get_by_role("alert")).to_be_visible()
