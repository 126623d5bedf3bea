"""Skills that are pushed from the browser: folders packed there, archives, refusals, and connections that break."""

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from quarterdeck.client.ignoring import _CLASSES, Rules, is_left_out, read_patterns

from quarterdeck.client.bundle_archive import pack_folder
from tests.client.misbehaving import Proxy, hangs, resets_after_the_effect, resets_at_once
from tests.client.test_packing import PAIRED, PATTERNS, TREES, skill, write
from tests.console.browser import Visitor, visiting
from tests.world import Server, World, bundle

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A drop as a page sees it.
DROP = """([zone, name, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""
# The module as the page itself has it.
VERDICTS = """async (cases) => {
  const { asBytes, bytesAsText, isLeftOut, readPatterns } =
    await import(document.querySelector('link[href$="skills/ignoring.js"]').href);
  return cases.map(({ text, paths }) => {
    const rules = [{ base: "", patterns: readPatterns(bytesAsText(text)) }];
    return paths.map(([path, isFolder]) => isLeftOut(rules, asBytes(path), isFolder));
  });
}"""


async def drop(page: Page, name: str, content: bytes) -> None:
    zone = await page.get_by_role("region", name="Push a version").element_handle()
    await page.evaluate(DROP, [zone, name, list(content)])


async def drop_folder(page: Page, folder: Path) -> None:
    """As the system does it: a script can make no folder."""
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
        await page.get_by_role("button", name="Choose a folder…").click()
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


async def test_a_folder_becomes_the_skill_that_qd_would_push(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    files: dict[str, str | bytes] = {
        ".git/HEAD": "x",
        ".gitignore": "*.log\nbuild/\n",
        ".skillignore": "!keep.log\n",
        "build/out": "x",
        "keep.log": "kept",
        "other.log": "x",
        "sub/.gitignore": "/here\n",
        "sub/here": "x",
        "sub/deep/here": "x",
        "größe/日本語 𝒳.md": "y",
        "d" * 90 + "/" + "n" * 90: bytes(range(256)) * 5,
        "empty": "",
        "block": "b" * 512,
        "run.sh": "#!/bin/sh\n",
    }
    folder = skill(tmp_path / "greeting", **files)
    os.chmod(folder / "run.sh", 0o755)
    await visitor.sign_in(world.key, "/skills")
    await expect(page.get_by_role("heading", name="No skills yet")).to_be_visible()
    await choose(page, folder)
    dialog = page.get_by_role("dialog", name="New skill")
    await expect(dialog.get_by_text("greeting: 11 files")).to_be_visible()
    # As SKILL.md has it, not as the folder is called.
    await expect(dialog.get_by_label("Name")).to_have_value("demo")
    assert await visitor.problems() == []
    await dialog.get_by_role("button", name="Create and push").click()
    await visitor.heading("demo")
    await expect(page.get_by_text("Version 1 was pushed")).to_be_visible()
    await expect(page.locator(".arrived")).to_be_focused()

    skill_id = (await world.get("/v1/skills")).json()["items"][0]["id"]
    with pack_folder(folder) as packed:
        pushed = (await world.push(skill_id, packed.read())).json()
    ours = (await world.get(f"/v1/skills/{skill_id}/versions/1")).json()
    qds = [file | {"executable": False} for file in pushed["manifest"]["files"]]
    assert ours["manifest"]["files"] == qds
    assert ours["frontmatter"] == pushed["frontmatter"]
    # All of it is the same, but for the modes that a browser does not tell and the way zlib was asked.
    os.chmod(folder / "run.sh", 0o644)
    with pack_folder(folder) as packed:
        expected = gzip.decompress(packed.read())
    bundle_bytes = (await world.get(f"/v1/skills/{skill_id}/versions/1/bundle")).content
    assert gzip.decompress(bundle_bytes) == expected
    assert bundle_bytes[4:8] == bytes(4)


async def test_ignore_files_mean_the_same_in_both_clients(visitor: Visitor) -> None:
    """The Python client's rules are git's; those are tested against git itself."""
    lines = [[pattern] for pattern in PATTERNS]
    lines += [[one, f"!{other}"] for one in PAIRED for other in PAIRED]
    lines += [["*", "!*/", f"!{one}"] for one in PATTERNS]
    texts = ["\n".join(each).encode() for each in lines]
    texts += [b"\xef\xbb\xbfa\r\n#b\r\n", b"[\x80-\xff]\n", b"\xc3?\n", b"/a[!x]b\n", b"[[:toString:]]\n"]
    texts += [b"[[:%b:]]\n" % name for name in _CLASSES]
    characters = [chr(code) for code in range(1, 128) if chr(code) not in "./"]
    paths = sorted({(path, False) for tree in [*TREES, characters] for path in tree})
    paths += sorted({(str(above), True) for path, _ in paths for above in list(Path(path).parents)[:-1]})
    expected = []
    for text in texts:
        rules = [Rules(b"", read_patterns(text))]
        expected.append([is_left_out(rules, path.encode(), is_folder) for path, is_folder in paths])
    assert 0 < sum(map(sum, expected)) < len(texts) * len(paths)
    await visitor.open()
    await visitor.heading("Sign in")
    found = await visitor.page.evaluate(VERDICTS, [{"text": list(text), "paths": paths} for text in texts])
    wrong = [text for text, ours, theirs in zip(texts, found, expected, strict=True) if ours != theirs]
    assert not wrong


async def test_an_archive_is_dropped_or_refused_with_the_reason(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    skill_id = await world.new_skill()
    await visitor.sign_in(world.key, f"/skills/{skill_id}")
    await expect(page.get_by_role("heading", name="No version yet")).to_be_visible()

    await drop(page, "demo.tar.gz", bundle(notes="n"))
    await expect(page.get_by_text("sent as it is")).to_be_visible()
    await expect(page.get_by_role("button", name="Push it")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="Version 1")).to_contain_text("in use")
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
        await page.get_by_role("button", name="Push it").click()
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text(reason)
        await expect(alert).to_contain_text("Request ")
        await expect(page.get_by_role("button", name="Push it again")).to_be_focused()
        assert await visitor.problems() == []
        await page.get_by_role("button", name="Choose another").click()
        await expect(page.get_by_role("button", name="Choose a folder…")).to_be_focused()
    assert len(await versions(world, skill_id)) == 1

    # What is no skill for certain is not sent.
    await choose(page, write(tmp_path, {"a/b/SKILL.md": "x", "c": "x"}))
    await expect(page.get_by_role("alert")).to_contain_text("There is a/b/SKILL.md: choose its folder.")
    # A real drop, of a folder that is read by its entries.
    full = {f"many/{number}": "x" for number in range(250)}
    await drop_folder(page, skill(tmp_path / "full", **full, **{".skillignore": "many/1*\n"}))
    await expect(page.get_by_text("141 files, ")).to_be_visible()
    await page.get_by_role("button", name="Push it").click()
    await expect(page.get_by_text("Version 2 was pushed: 141 files")).to_be_visible()
    # A skill is often one file.
    await drop(page, "SKILL.md", b"---\nname: demo\ndescription: d\n---\n")
    await page.get_by_role("button", name="Push it").click()
    await expect(page.get_by_text("Version 3 was pushed: 1 file")).to_be_visible()


async def test_a_push_over_a_broken_connection_counts_once(browser: Browser, server: Server, world: World) -> None:
    skill_id = await world.new_skill()
    async with Proxy(server, []).running() as proxy, visiting(browser, proxy.url) as visitor:
        page = visitor.page
        await visitor.sign_in(world.key, f"/skills/{skill_id}")
        await expect(page.get_by_role("heading", name="No version yet")).to_be_visible()
        await drop(page, "demo.tar.gz", bundle())
        proxy.requests.clear()
        proxy.script.append(resets_after_the_effect)
        await page.get_by_role("button", name="Push it").click()
        await expect(page.get_by_text("Version 1 was pushed")).to_be_visible()
        keys = [key for key in proxy.headers("Idempotency-Key") if key]
        assert len(keys) == 2
        assert len(set(keys)) == 1

        # Away for longer than it is waited for: what was chosen is kept.
        await drop(page, "demo.tar.gz", bundle(more="x"))
        proxy.script.extend([resets_at_once] * 5)
        await page.get_by_role("button", name="Push it").click()
        await expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
        await page.get_by_role("button", name="Push it again").click()
        await expect(page.get_by_text("Version 2 was pushed")).to_be_visible()

        # Stopped when it had arrived already: once more is not another.
        await drop(page, "demo.tar.gz", bundle(third="x"))
        proxy.script.append(hangs)
        await page.get_by_role("button", name="Push it").click()
        await expect(page.get_by_text("The server reads it…")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("Stopped.")).to_be_visible()
        await page.get_by_role("button", name="Push it again").click()
        await expect(page.get_by_text("Version 3 was pushed")).to_be_visible()
    assert [one["version"] for one in await versions(world, skill_id)] == [3, 2, 1]
