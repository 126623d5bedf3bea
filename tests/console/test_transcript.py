"""The transcript: Markdown, hostile texts, all events, long sessions."""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import NARROW, ConsolePage, open_console
from tests.world import Server, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

MEGABYTE = 1024 * 1024
_APPEND = """
INSERT INTO session_events (session_id, run_id, type, data)
SELECT %s, (entry->>'run_id')::uuid, entry->>'type', entry->'data' FROM jsonb_array_elements(%s::jsonb) AS entry
"""
# Markdown and the expected HTML, without line breaks between elements, `rel` and `target`.
MARKDOWN = [
    ("a **b** and *c* and ***d***", "<p>a <strong>b</strong> and <em>c</em> and <em><strong>d</strong></em></p>"),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("_so_ \\*not so\\* `a*b*` ``a`b``", "<p><em>so</em> *not so* <code>a*b*</code> <code>a`b</code></p>"),
    ("**open *and [open", "<p>**open *and [open</p>"),
    ("two\nlines", "<p>two<br>lines</p>"),
    ("## Two\n\ntext", "<h4>Two</h4><p>text</p>"),
    (
        "- a\n- b\n  - c\n\n3. d\n4. e",
        '<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start="3"><li>d</li><li>e</li></ol>',
    ),
    (
        "- [x] a\n- [ ] b\n- [x]c",
        '<ul><li class="task"><input type="checkbox" disabled="" aria-label="Done"> a</li>'
        '<li class="task"><input type="checkbox" disabled="" aria-label="Not done"> b</li><li>[x]c</li></ul>',
    ),
    ("> q\n> r\n\n---", "<blockquote><p>q<br>r</p></blockquote><hr>"),
    (
        "|a|b|\n|-|-:|\n|1|~~2~~|",
        '<div class="table-scroll" tabindex="0"><table><thead><tr><th>a</th><th class="align-right">b</th></tr></thead>'
        '<tbody><tr><td class="short">1</td><td class="align-right short"><s>2</s></td></tr></tbody></table></div>',
    ),
    ("<b>x</b> <script>y()</script>", "<p>&lt;b&gt;x&lt;/b&gt; &lt;script&gt;y()&lt;/script&gt;</p>"),
    ("[x](javascript:alert(1)) [y](data:text/html,z)", "<p>[x](javascript:alert(1)) [y](data:text/html,z)</p>"),
    ("[x](JaVaScRiPt&colon;alert(1)) <javascript:z>", "<p>[x](JaVaScRiPt:alert(1)) &lt;javascript:z&gt;</p>"),
    ("[x](/v1/keys) [y](//e.org)", "<p>[x](/v1/keys) [y](//e.org)</p>"),
    ("[a *b*](http://e.org/x_(y))", '<p><a href="http://e.org/x_(y)">a <em>b</em></a></p>'),
    ('[a](http://e.org/"onx=1 "t")', '<p><a href="http://e.org/%22onx=1">a</a></p>'),
    ("[a][r]\n\n[r]: http://e.org 'onclick=x'", '<p><a href="http://e.org">a</a></p>'),
    ("![alt](https://e.org/i.png)", '<p><a href="https://e.org/i.png">Image: alt</a></p>'),
    ("[![alt](https://e.org/i.png)](https://f.org)", '<p><a href="https://f.org">Image: alt</a></p>'),
    (
        "see https://e.org/a_b_c. README.md",
        '<p>see <a href="https://e.org/a_b_c">https://e.org/a_b_c</a>. README.md</p>',
    ),
]
# Language, code and the expected parts of a code block.
CODE = [
    ("py", "def f():\n    return '<b>'", "Python", ["hljs-keyword", "hljs-string"]),
    ("unknown", "<b> *x*", "unknown", []),
    ("", "plain", "", []),
    ('js" onclick="x', "let a = 1", 'js"', []),
]
HOSTILE = [
    "*",
    "_",
    "`",
    "[",
    "](",
    "[](",
    "![a](http://a ",
    "*a*",
    "> ",
    "- ",
    "# ",
    "\n",
    "a\n\n",
    "  - a\n",
    "~~~\n",
    "``` ",
    "http://",
    "\\",
    "*a _b ",
    "` `` ",
    "a",
    "<b>",
    "|a",
    "|a|b|\n|-|-|\n",
    "|",
    "~~a",
    "![",
    "**_a",
    "<!--",
    "[a]: b\n",
    "- a\n  ",
    "a@b.c ",
    "![a](http://a) ",
    "```py\n1 1 'a' \n```\n",
]
# Many opening marks, followed by as many closing marks.
HOSTILE_PAIRS = [
    ("*a _b ", "b_ a* "),
    ("**a *b _c __d ", "d__ c_ b* a** "),
    ("[a ", "b](http://e) "),
    ("![a ", "b](http://e) "),
    ("[ *a *b *c *d *e *f *g *h ", " http://x"),
    ("> ", "a\n"),
]
# As much code as is highlighted.
HOSTILE_CODE = [
    f"```{language}\n{code * (19_000 // len(code))}"
    for language in (
        "bash",
        "cpp",
        "css",
        "javascript",
        "json",
        "markdown",
        "python",
        "sql",
        "typescript",
        "xml",
        "yaml",
    )
    for code in ("'", "1 ", "/*", "<a ", "((", "${`")
]


async def append(world: World, session_id: str, entries: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    rows = [{"type": kind, "run_id": run_id, "data": data} for kind, run_id, data in entries]
    await world.execute(_APPEND, session_id, json.dumps(rows))


def messages(*texts: str) -> list[tuple[str, str, dict[str, Any]]]:
    run_id = str(uuid4())
    return [("message", run_id, {"role": "assistant", "text": text}) for text in texts]


async def module(console: ConsolePage, name: str) -> str:
    """The URL of a console module."""
    found: str = await console.page.evaluate(
        "name => [...document.querySelectorAll('link')].map(link => link.href).find(href => href.endsWith(name))",
        name,
    )
    return found


async def test_markdown(console: ConsolePage) -> None:
    await console.open()
    found = await console.page.evaluate(
        """async ([source, texts]) => {
            const { markdown } = await import(source);
            return texts.map((text) => {
                const node = markdown(text);
                for (const link of node.querySelectorAll("a")) {
                    if (link.rel !== "noopener noreferrer" || link.target !== "_blank") throw new Error(link.outerHTML);
                    link.removeAttribute("rel");
                    link.removeAttribute("target");
                }
                const blocks = [...node.querySelectorAll(".md-block")];
                return blocks.map((block) => block.innerHTML).join("").replaceAll("\\n", "");
            });
        }""",
        [await module(console, "session/markdown.js"), [text for text, _ in MARKDOWN]],
    )
    assert list(zip([text for text, _ in MARKDOWN], found, strict=True)) == MARKDOWN


async def test_code_blocks_and_growing_text(console: ConsolePage) -> None:
    """Code has its language, colours and a copy button. While a text grows, finished blocks stay in the page."""
    page = console.page
    await console.open()
    source = await module(console, "session/markdown.js")
    for language, code, label, classes in CODE:
        await page.evaluate(
            "async ([source, text]) => document.body.replaceChildren((await import(source)).markdown(text))",
            [source, f"```{language}\n{code}\n```"],
        )
        await expect(page.locator(".language")).to_have_text(label)
        await expect(page.locator("pre[tabindex='0'] > code")).to_have_text(code)
        for name in classes:
            await expect(page.locator(f"pre .{name}").first).to_be_visible()
        assert await page.locator("[onclick]").count() == 0
        await page.get_by_role("button", name="Copy code").click()
        assert await page.evaluate("navigator.clipboard.readText()") == code
    kept = await page.evaluate(
        """async (source) => {
            const { MarkdownView } = await import(source);
            const view = new MarkdownView();
            view.update("# One\\n\\ntwo **th");
            const [first, second] = view.node.children;
            view.update("# One\\n\\ntwo **three**\\n\\n[four][r]");
            const isKept = view.node.children[0] === first && view.node.children[1] !== second;
            view.update("# One\\n\\ntwo **three**\\n\\n[four][r]\\n\\n[r]: http://e.org");
            return [isKept, view.node.textContent.replaceAll("\\n", ""), view.node.querySelectorAll("a").length];
        }""",
        source,
    )
    assert kept == [True, "Onetwo threefour", 1]


async def test_hostile_markdown_takes_bounded_time(console: ConsolePage) -> None:
    """A megabyte of any text. Quadratic time would take hours."""
    await console.open()
    work = console.page.evaluate(
        """async ([source, texts, length, codes]) => {
            const { markdown } = await import(source);
            const repeat = (parts) => parts.map((part) => part.repeat(length / parts.length / part.length)).join("");
            return [...texts.map(repeat), ...codes].map((text) => markdown(text).querySelectorAll("*").length);
        }""",
        [
            await module(console, "session/markdown.js"),
            [*[(part,) for part in HOSTILE], *HOSTILE_PAIRS],
            MEGABYTE,
            HOSTILE_CODE,
        ],
    )
    counts = await asyncio.wait_for(work, 240)
    assert max(counts) < 30_000, "the number of elements must be limited"


async def test_hostile_text_of_others_is_harmless(world: World, browser: Browser, server: Server) -> None:
    session_id = await world.new_session()
    run_id = str(uuid4())
    evil = (
        "<script>alert(1)</script><img src=x onerror=alert(2)> ![i](http://evil.example/i.png) [l](javascript:alert(3))"
    )
    call = {"call_id": "c", "name": "<b>evil</b>", "arguments": {"html": evil}}
    await append(
        world,
        session_id,
        [
            ("input.accepted", run_id, {"input_id": "i", "text": evil}),
            ("run.started", run_id, {"attempt": 1}),
            ("input.consumed", run_id, {"input_id": "i", "step": 1}),
            *messages(evil, "x" * MEGABYTE, "## " + "y" * 3000 + "\n```\n" + "z" * 3000 + "\n```\n- " + "w" * 3000),
            ("tool.call", run_id, call),
            ("tool.result", run_id, {"call_id": "c", "name": "x", "text": evil + "v" * 30_000}),
        ],
    )
    async with open_console(browser, server.url, width=NARROW) as console:
        page = console.page
        await console.sign_in(world.key, f"/sessions/{session_id}")
        transcript = page.get_by_role("region", name="Transcript")
        await expect(transcript).to_contain_text("alert(1)")
        assert await transcript.locator("script, img, iframe, object, svg").count() == 0
        links = await transcript.locator("a").evaluate_all("links => links.map(link => [link.href, link.rel])")
        assert links == [["http://evil.example/i.png", "noopener noreferrer"]]
        await transcript.locator("summary").click()
        await expect(transcript.locator("details")).to_contain_text("evil")
        assert await console.overflow() <= 0
        await page.get_by_role("button", name="Show all 1,048,576 characters").click()
        await expect(page.get_by_role("button", name="Show all 1,048,576 characters")).to_have_count(0)
        answer = transcript.get_by_role("article", name="Answer").nth(1).locator(".markdown")
        shown = await answer.evaluate("node => node.textContent.replaceAll('\\n', '').length")
        assert shown == MEGABYTE
        assert await console.overflow() <= 0
        assert await console.accessibility_problems() == []


DETAILS = {
    "reasoning": "First the beginning.",
    "sources": [
        {"title": "A page", "url": "https://example.com/a"},
        {"title": "No page", "url": "javascript:alert(1)"},
    ],
}


async def test_requeued_failed_and_follow_up_runs(console: ConsolePage, world: World) -> None:
    session_id = await world.new_session()
    first, second, third = (str(uuid4()) for _ in range(3))
    await append(
        world,
        session_id,
        [
            ("input.accepted", first, {"input_id": "a", "text": "begin"}),
            ("run.started", first, {"attempt": 1}),
            ("input.consumed", first, {"input_id": "a", "step": 1}),
            ("settings.ignored", first, {"model": "openai:o3", "settings": ["temperature"]}),
            ("model.switched", first, {"from": "openai:o3", "to": "demo", "reason": "openai:o3 failed."}),
            ("context.trimmed", first, {"dropped_turns": 2}),
            ("tool.call", first, {"call_id": "t", "name": "look_up", "arguments": {"what": "this"}}),
            ("run.requeued", first, {"reason": "Its worker was lost."}),
            ("input.accepted", first, {"input_id": "b", "text": "go on"}),
            ("run.started", first, {"attempt": 2}),
            ("run.failed", first, {"reason": "No more.", "next_run_id": second}),
            ("run.started", second, {"attempt": 1, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}),
            ("input.consumed", second, {"input_id": "b", "step": 1}),
            ("message", second, {"role": "assistant", "text": "Half an answ", "cut_off": "length", **DETAILS}),
            ("run.succeeded", second, {}),
            ("input.accepted", third, {"input_id": "c", "text": "anew"}),
        ],
    )
    page = console.page
    await console.sign_in(world.key, f"/sessions/{session_id}")
    transcript = page.get_by_role("region", name="Transcript")
    for text in (
        "Started a run · Read at step 1",
        "2 earlier turns removed to fit the model's context.",
        "Not sent, because openai:o3 does not take it: temperature.",
        "Switched from openai:o3 to demo: openai:o3 failed.",
        "look_up No result",
        "The run was requeued: Its worker was lost.",
        "✕ Failed: No more.",
        "1 input moved to the next run.",
        "Moved to the next run · Read at step 1",
        "Cut off: it reached the limit of output tokens",
        "Started a run · Queued",
    ):
        await expect(transcript.get_by_text(text)).to_have_count(1)
    for number, end in ((1, r"steered 1 time, failed\."), (2, r"completed\."), (3, r"queued now\.")):
        await expect(page.get_by_role("img", name=re.compile(rf"^Run {number}, .*{end}$"))).to_be_visible()
    await expect(page.get_by_role("button", name="Send to current run")).to_be_visible()
    await expect(page.get_by_text("First the beginning.")).to_be_hidden()
    await transcript.get_by_text("Reasoning").click()
    await expect(page.get_by_text("First the beginning.")).to_be_visible()
    sources = page.get_by_role("article", name="Answer").get_by_role("listitem")
    await expect(sources).to_have_text(["A page", "No page"])
    await expect(sources.get_by_role("link")).to_have_attribute("href", "https://example.com/a")
    await page.get_by_role("button", name="Details").last.click()
    await expect(page.locator(".end .facts:visible")).to_contain_text("Trace ID4bf92f3577b34da6a3ce929d0e0e4736")
    assert await console.accessibility_problems() == []


SCROLL_BEFORE_EACH_FRAME = """() => {
  const request = window.requestAnimationFrame.bind(window);
  const draw = (callback) => { window.dispatchEvent(new Event("scroll")); request(callback); };
  window.requestAnimationFrame = (callback) => setTimeout(draw, 50, callback);
}"""


async def test_scroll_through_ten_thousand_events(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    entries: list[tuple[str, str, dict[str, Any]]] = []
    for number in range(1250):
        run_id = str(uuid4())
        entries += [
            ("input.accepted", run_id, {"input_id": f"i{number}", "text": f"question {number}"}),
            ("run.started", run_id, {"attempt": 1}),
            ("input.consumed", run_id, {"input_id": f"i{number}", "step": 1}),
            ("message", run_id, {"role": "assistant", "text": f"I look **{number}** up."}),
            ("tool.call", run_id, {"call_id": f"c{number}", "name": "look_up", "arguments": {"number": number}}),
            ("tool.result", run_id, {"call_id": f"c{number}", "name": "look_up", "text": "found " * 40}),
            ("message", run_id, {"role": "assistant", "text": f"answer {number}\n\n- a\n- b\n\n" + "word " * 60}),
            ("run.succeeded", run_id, {}),
        ]
    await append(world, session_id, entries)
    await world.execute("ANALYZE session_events")
    await console.sign_in(world.key, "/sessions")
    await expect(page.get_by_role("link", name="Untitled session")).to_be_visible()
    await page.evaluate("path => { location.hash = path; }", f"/sessions/{session_id}")
    await expect(page.get_by_text("answer 1249")).to_be_in_viewport()
    await expect(page.get_by_text("Last 8 of 1250 runs")).to_be_attached()
    assert await page.evaluate("document.querySelectorAll('*').length") < 4000
    assert await page.get_by_role("button", name="Jump to latest").is_hidden()
    # Scroll up until the last block is no longer rendered.
    await page.mouse.move(500, 300)
    for _ in range(200):
        await page.mouse.wheel(0, -3000)
        await page.evaluate("new Promise(requestAnimationFrame)")
        if await page.get_by_text("question 1150", exact=True).count():
            break
    await expect(page.get_by_text("question 1150", exact=True)).to_be_attached()
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    assert await page.get_by_text("answer 1249").count() == 0
    assert await page.evaluate("document.querySelectorAll('*').length") < 8000
    # A new event must not move the visible blocks.
    seen = page.get_by_text("question 1160", exact=True)
    await seen.scroll_into_view_if_needed()
    before = await seen.bounding_box()
    await append(world, session_id, messages("something new"))
    await expect(page.get_by_role("status").filter(has_text="something new")).to_be_attached()
    after = await seen.bounding_box()
    assert before
    assert after
    assert abs(before["y"] - after["y"]) < 2
    await page.get_by_role("button", name="Jump to latest").click()
    await expect(page.get_by_role("article", name="Answer").filter(has_text="something new")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
    # At the end the page follows new events, also if it is scrolled before it has drawn them.
    await page.evaluate(SCROLL_BEFORE_EACH_FRAME)
    await append(world, session_id, messages("newer\n\n" * 40, "the newest"))
    await expect(page.get_by_role("article", name="Answer").filter(has_text="the newest")).to_be_in_viewport()
    # Sending a message returns to the end.
    await page.mouse.wheel(0, -1000)
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    await page.get_by_label("Message").fill("my own")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="Input").filter(has_text="my own")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
