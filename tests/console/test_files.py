"""Files in the browser: attachments of messages, tool cards, terminals, and the files of a session."""

import asyncio
import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import FilePayload, Locator, Page, Route, expect

from tests.console.browser import NARROW, WIDE, ConsolePage
from tests.console.sample_files import png
from tests.console.test_transcript import append, module
from tests.workers import at_rest, log_of, working
from tests.world import Server, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

HOSTILE = "<img src=x onerror=window.ran=1>"
RED, GREEN = "rgb(242, 119, 122)", "rgb(127, 201, 139)"


def image(width: int = 40, height: int = 30) -> bytes:
    return png(width, height, lambda x, y: (200, x, y))


# Synthetic events: a browser under test has no file manager and no clipboard with images.
TRANSFER = """
  const transfer = new DataTransfer();
  for (const [name, type, bytes] of files) transfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
"""
DROP = f"""([target, files]) => {{ {TRANSFER}
  for (const type of ["dragenter", "dragover", "drop"]) {{
    target.dispatchEvent(new DragEvent(type, {{ dataTransfer: transfer, bubbles: true, cancelable: true }}));
  }}
}}"""
PASTE = f"""([target, files]) => {{ {TRANSFER}
  target.dispatchEvent(new ClipboardEvent("paste", {{ clipboardData: transfer, bubbles: true, cancelable: true }}));
}}"""


async def give(page: Page, how: str, target: Locator, *files: tuple[str, str, bytes]) -> None:
    listed = [(name, kind, list(content)) for name, kind, content in files]
    await page.evaluate(how, [await target.element_handle(), listed])


async def new_session(world: World, *, sandbox: bool) -> str:
    session_id = await world.new_session()
    # By SQL: the API refuses a sandbox on machines that have none.
    await world.execute("UPDATE sessions SET sandbox = %s WHERE id = %s", "{}" if sandbox else None, session_id)
    return session_id


async def test_attach_by_picking_dropping_and_pasting(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await new_session(world, sandbox=True)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Message")
    pending = page.get_by_role("list", name="Attached files").get_by_role("listitem")

    # The first upload fails. The message waits until it was retried.
    await page.route("**/v1/files?*", lambda route: route.abort(), times=1)
    async with page.expect_file_chooser() as opened:
        await page.get_by_role("button", name="Attach files").click()
    chooser = await opened.value
    assert chooser.is_multiple()
    await chooser.set_files([FilePayload(name=f"{HOSTILE}.txt", mimeType="text/plain", buffer=b"some notes\n")])
    await expect(pending.get_by_role("alert")).to_have_text("The server cannot be reached.")
    await message.press("Enter")
    await expect(page.get_by_text("Retry or remove it")).to_be_visible()
    await pending.get_by_role("button", name="Retry").click()
    await expect(pending.locator("progress, .chip-error")).to_have_count(2)
    await expect(pending.locator("progress:visible, .chip-error:visible")).to_have_count(0)

    await give(page, DROP, page.locator(".transcript"), ("chart.png", "image/png", image()), ("raw.bin", "", b"\0\1\2"))
    await give(page, PASTE, message, ("image.png", "image/png", image(20, 20)))
    await expect(pending).to_have_count(4)
    await expect(pending.locator("img")).to_have_count(2)
    await page.get_by_role("button", name="Remove raw.bin").click()
    await expect(message).to_be_focused()
    assert await console.accessibility_problems() == []

    # Without text. The message waits for an upload that is not finished.
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/v1/files?*", lambda route: held.put_nowait(route), times=1)
    await give(page, DROP, page.locator(".transcript"), ("last.csv", "text/csv", b"a,b\n1,2\n"))
    await message.press("Enter")
    await expect(page.get_by_text("The message is sent when all files are uploaded.")).to_be_visible()
    assert await page.get_by_role("article", name="Input").count() == 0
    await (await held.get()).continue_()
    sent = page.get_by_role("article", name="Input").get_by_role("list", name="Attachments").get_by_role("listitem")
    await expect(sent).to_have_count(4)
    await expect(pending).to_have_count(0)
    await expect(page.get_by_text("Started a run ·")).to_be_visible()
    accepted = (await log_of(world, session_id))[0]["data"]
    names = [one["name"] for one in accepted["attachments"]]
    assert (accepted["text"], names) == ("", [f"{HOSTILE}.txt", "chart.png", "image.png", "last.csv"])

    # The transcript shows them, with thumbnails that the browser can decode.
    await expect(sent.locator("img")).to_have_count(2)
    sizes = "images => Promise.all(images.map(async (one) => { await one.decode(); return one.naturalWidth; }))"
    assert await sent.locator("img").evaluate_all(sizes) == [40, 20]
    await sent.nth(0).get_by_role("button").first.click()
    viewer = page.get_by_role("dialog")
    await expect(viewer.get_by_role("region")).to_contain_text("some notes")
    assert await console.accessibility_problems() == []
    await page.keyboard.press("Escape")
    await sent.nth(1).get_by_role("button").first.click()
    await expect(viewer.get_by_role("img", name="chart.png")).to_be_visible()
    async with page.expect_download() as downloaded:
        await viewer.get_by_role("button", name="Download").click()
    assert (await (await downloaded.value).path()).read_bytes() == image()
    await viewer.get_by_role("button", name="Close").click()

    # A refused message keeps its files, for the next one. A deleted file is read from the session.
    await give(page, PASTE, message, ("again.png", "image/png", image(9, 9)))
    await expect(pending.locator("progress:visible")).to_have_count(0)
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    await message.fill("late")
    await message.press("Enter")
    await expect(page.get_by_role("alert").filter(has_text="archived")).to_be_visible()
    await expect(message).to_have_value("late")
    await expect(pending).to_have_count(1)
    await world.patch(f"/v1/sessions/{session_id}", {"archived": False})
    await message.press("Enter")
    await expect(sent).to_have_count(5)
    await world.delete(f"/v1/files/{accepted['attachments'][1]['file_id']}")
    await page.reload()
    await expect(sent.locator("img")).to_have_count(3)
    assert await page.evaluate("window.ran") is None


# Pieces of output, and the text of the lines with the style of each part.
TERMINAL: list[tuple[list[str], list[list[str]]]] = [
    (["plain\n\nlast"], [["plain"], [], ["last"]]),
    (["a\x1b[31mred\x1b[mb\x1b[1;32mok\x1b[0m"], [["a", "red color=1", "b", "ok color=2 isBold=true"]]),
    (["\x1b[9", "1mbright\x1b[", "39m."], [["bright color=9", "."]]),
    (["\x1b[38;5;208mx\x1b[48;2;1;2;3my"], [["x color=255,135,0", "y color=255,135,0 background=1,2,3"]]),
    (["10%\r55%\r100%\nlong line\r\x1b[Kshort\n"], [["100%"], ["short"]]),
    (["one\ntwo\x1b[A\r\x1b[2KONE\nTWO\b!"], [["ONE"], ["TW!"]]),
    (["\x1b]8;;https://e\x07link\x1b]8;;\x1b\\ \x1b]0;title\x07\x1b[?25l\x1b(Bend\x07"], [["link end"]]),
    (["\x1b[8mshown\x1b[99999999C!"], [["shown!"]]),
]


async def test_terminal_text(console: ConsolePage) -> None:
    """Colours and overwritten lines, also in pieces. Hostile output takes bounded time and space."""
    await console.open()
    source = await module(console, "session/terminal_text.js")
    found = await console.page.evaluate(
        """async ([source, cases]) => {
            const { TerminalText } = await import(source);
            const set = (style) => Object.entries(style).filter(([, value]) => value || value === 0);
            const part = ({ text, style }) => [text, ...set(style).map((one) => one.join("="))].join(" ");
            return cases.map((pieces) => {
                const terminal = new TerminalText();
                for (const piece of pieces) terminal.write(piece);
                return terminal.runs().map((line) => line.map(part));
            });
        }""",
        [source, [pieces for pieces, _ in TERMINAL]],
    )
    assert found == [lines for _, lines in TERMINAL]
    lines = await console.page.evaluate(
        """async (source) => {
            const { TerminalText } = await import(source);
            const parts = ["\\x1b[", "\\x1b]", "\\x1b[1m", "\\n", "\\x1b[9999C", "\\x1bP\\x1b", "a\\r", "\\t\\x1b[99A"];
            return parts.map((part) => {
                const terminal = new TerminalText();
                terminal.write(part.repeat(200_000));
                for (let count = 0; count < 1000; count += 1) terminal.write(part);
                return terminal.lineCount;
            });
        }""",
        source,
    )
    assert max(lines) <= 5000


def call(name: str, arguments: dict[str, Any], result: str | None) -> list[tuple[str, dict[str, Any]]]:
    call_id = str(uuid4())
    made = [("tool.call", {"call_id": call_id, "name": name, "arguments": arguments})]
    return made if result is None else [*made, ("tool.result", {"call_id": call_id, "name": name, "text": result})]


DIFF = (
    f'Replaced "{HOSTILE}.py" (30 bytes).\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n import os\n-old {HOSTILE}\n'
    f"+new {HOSTILE}\n+more\n"
)
OUTPUT = (
    f"\x1b[31mred\x1b[m and \x1b[1;32mbold green\x1b[0m\n10%\r100%\n{HOSTILE}\n\x1b]0;title\x07\x1b[8mhidden\x1b[0m"
)


async def test_tool_cards(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await new_session(world, sandbox=False)
    many = "".join(f"line {number}\n" for number in range(1, 201))
    late = "\n[The command was stopped because it ran for more than 5 s. Exit code 137.]"
    entries = [
        ("run.started", {"attempt": 1}),
        *call("bash", {"command": f"make {HOSTILE}"}, f"{OUTPUT}\n[Exit code 2.]"),
        *call("bash", {"command": "seq 200", "timeout_seconds": 5}, many + late),
        *call("edit_file", {"path": f"{HOSTILE}.py", "old": "o", "new": "n"}, DIFF),
        *call("read_file", {"path": f"{HOSTILE}.py"}, f"1\t{HOSTILE}"),
        *call("edit_file", {"path": 5}, 'the argument "path" must be a text.'),
        *call("bash", {"command": 5}, 'the argument "command" must be a text.'),
        *call("bash", {"command": "sleep 100"}, None),
        ("run.cancelled", {}),
    ]
    run_id = str(uuid4())
    await append(world, session_id, [(kind, run_id, data) for kind, data in entries])
    await console.sign_in(world.key, f"/sessions/{session_id}")
    cards = page.locator("details.tool")
    await expect(cards).to_have_count(7)

    make = cards.nth(0)
    await expect(make.locator(".tag")).to_have_text("Exit code 2")
    await expect(make.locator(".prompt")).to_have_text(f"$ make {HOSTILE}")
    lines = await make.locator(".terminal-lines > div").all_inner_texts()
    assert lines == ["red and bold green", "100%", HOSTILE, "hidden"]
    await expect(make.locator(".terminal span", has_text="red").first).to_have_css("color", RED)
    await expect(make.locator(".terminal span", has_text="bold green")).to_have_css("font-weight", "700")

    seq = cards.nth(1)
    await expect(seq.locator(".tag")).to_have_text(["Stopped: it ran for more than 5 s", "Exit code 137"])
    await expect(seq.locator(".terminal-lines > div")).to_have_count(30)
    await seq.get_by_role("button", name="Show all 200 lines").click()
    await expect(seq.locator(".terminal-lines > div")).to_have_count(200)

    edit = cards.nth(2)
    await expect(edit.locator(".counts")).to_have_text("+2 −1")
    rows = edit.get_by_role("table", name="Changes of").locator("tbody tr")
    await expect(rows).to_have_count(5)
    await expect(edit.locator("del")).to_have_text(f"old {HOSTILE}")
    await expect(edit.locator("ins").first).to_have_text(f"new {HOSTILE}")
    read = cards.nth(3)
    await expect(read.locator("pre").first).to_be_hidden()
    await expect(read.locator("summary .brief")).to_have_text(f"{HOSTILE}.py")
    await expect(cards.nth(6)).to_contain_text("No result")
    # A session without a sandbox says what to do.
    await page.get_by_role("button", name="Files", exact=True).click()
    await expect(page.get_by_role("region", name="Files")).to_contain_text("turn on its sandbox")
    await page.get_by_role("button", name="Close files").click()
    for width in (WIDE, NARROW):
        await console.resize(width)
        assert await console.accessibility_problems() == []
        assert await console.overflow() <= 0
    assert await page.evaluate("window.ran") is None


@pytest.fixture
def sandbox_worker(server: Server) -> Iterator[None]:
    """A worker that stores files where the API reads them."""
    with working(server.database_url, server.data_dir):
        yield


def calls(*made: tuple[str, dict[str, str]]) -> str:
    return "\n".join(f"call: {name} {json.dumps(arguments)}" for name, arguments in made)


@pytest.mark.usefixtures("sandbox_worker")
async def test_sandbox_with_live_output(console: ConsolePage, world: World) -> None:
    """A real command in the sandbox: its output as it comes, the files that tools wrote, viewer and downloads."""
    page = console.page
    answer = await world.post("/v1/sessions", {"sandbox": {}})
    if answer.status_code == 400:
        pytest.skip(f"no sandbox: {answer.text}")
    session_id = answer.json()["id"]
    await console.sign_in(world.key, f"/sessions/{session_id}")
    files = page.get_by_role("button", name="Files", exact=True)
    await files.click()
    panel = page.get_by_role("region", name="Files")
    await expect(panel.get_by_text("No files yet")).to_be_visible()

    live = "printf '\\033[31mred\\033[0m one\\n10%%\\r20%%'; sleep 100"
    await page.get_by_label("Message").fill(calls(("bash", {"command": live})))
    await page.keyboard.press("Enter")
    card = page.locator("details.tool")
    await expect(card.locator(".terminal-lines > div")).to_have_text(["red one", "20%"])
    await expect(card.locator(".terminal span", has_text="red")).to_have_css("color", RED)
    await expect(card.locator("summary").first).to_contain_text("Running…")
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page.get_by_text("■ Cancelled")).to_be_visible()

    work = calls(
        ("write_file", {"path": "src/app.py", "content": f"import os\nprint(1)  # {HOSTILE}\n"}),
        ("edit_file", {"path": "src/app.py", "old": "print(1)", "new": "print(2)"}),
        ("write_file", {"path": f"src/{HOSTILE.replace('/', '')}.md", "content": "# Title\n"}),
        (
            "bash",
            {"command": "head -c 300000 /dev/zero | tr '\\0' x > long.txt; head -c 9 /dev/zero > zero; exit 3"},
        ),
    )
    await world.submit(session_id, work)
    await at_rest(world, session_id)
    await expect(card).to_have_count(5)
    await expect(card.nth(2).locator("ins")).to_contain_text("print(2)")
    await expect(card.nth(4).locator(".tag")).to_have_text("Exit code 3")

    # The tree was updated. It is used by keyboard.
    await expect(panel.get_by_role("link")).to_have_text(["long.txt", "zero"])
    await panel.locator("summary").focus()
    await page.keyboard.press("ArrowRight")
    await expect(panel.get_by_role("link")).to_have_text([f"{HOSTILE}.md", "app.py", "long.txt", "zero"])
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await expect(panel.get_by_role("link", name="app.py")).to_be_focused()
    assert await console.accessibility_problems() == []
    await page.keyboard.press("Enter")
    viewer = page.get_by_role("dialog")
    await expect(viewer.get_by_role("region")).to_contain_text(f"print(2)  # {HOSTILE}")
    await expect(viewer.locator(".hljs-keyword")).to_have_text("import")
    await viewer.get_by_role("button", name="Copy path").click()
    assert await page.evaluate("navigator.clipboard.readText()") == "src/app.py"
    assert await console.accessibility_problems() == []
    async with page.expect_download() as downloaded:
        await viewer.get_by_role("button", name="Download").click()
    assert b"print(2)" in (await (await downloaded.value).path()).read_bytes()
    await page.keyboard.press("Escape")
    await expect(panel.get_by_role("link", name="app.py")).to_be_focused()
    await panel.get_by_role("link", name="long.txt").click()
    await expect(viewer.get_by_text("The first 256 KB of 293 KB.")).to_be_visible()
    await page.keyboard.press("Escape")
    await panel.get_by_role("link", name="zero").click()
    await expect(viewer.get_by_text("This is a binary file.")).to_be_visible()
    await page.keyboard.press("Escape")
    async with page.expect_download() as downloaded:
        await panel.get_by_role("button", name="Download all").click()
    archive = (await (await downloaded.value).path()).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert {name.removeprefix("./") for name in opened.getnames()} >= {"src/app.py", "long.txt", "zero"}

    # It stays open on the next visit. On a narrow screen it is a drawer, which Escape closes.
    await page.reload()
    await expect(panel.get_by_role("link", name="zero")).to_be_visible()
    await card.nth(2).get_by_role("button", name="Open file").click()
    await expect(viewer.get_by_role("region")).to_contain_text("print(2)")
    await page.keyboard.press("Escape")
    await console.resize(NARROW)
    assert await console.accessibility_problems() == []
    assert await console.overflow() <= 0
    await panel.get_by_role("link", name="zero").focus()
    await page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()
    await expect(files).to_be_focused()

    await console.resize(WIDE)
    await page.get_by_role("button", name="Edit session").click()
    await viewer.get_by_label("Sandbox").select_option("Off")
    await expect(viewer.get_by_text("The agent has no files and runs no commands.")).to_be_visible()
    await viewer.get_by_role("button", name="Save").click()
    await expect(viewer).to_have_count(0)
    assert (await world.get(f"/v1/sessions/{session_id}")).json()["sandbox"] is None
    assert await page.evaluate("window.ran") is None
