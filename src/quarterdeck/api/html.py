"""Builds HTML. Text is escaped unless it has the type `Html`, which only this module creates."""

import re
from html import escape

_MARKS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")
_VOID = frozenset({"meta", "wbr"})


class Html(str):
    """Markup that needs no escaping."""

    __slots__ = ()


def el(tag: str, /, *children: str, **attributes: str) -> Html:
    """`class_` is the attribute `class`, `data_x` is `data-x`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"' for key, value in attributes.items()
    )
    if tag in _VOID:
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: str) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child, quote=True) for child in children))


def stylesheet(css: str) -> Html:
    """Not escaped: the CSS is our own, and browsers do not decode entities in a style element."""
    assert "</" not in css
    return Html(f"<style>{css}</style>")


def inline(text: str) -> Html:
    """Markdown's `code` and **bold**."""
    parts: list[str] = []
    end = 0
    for found in _MARKS.finditer(text):
        parts.append(text[end : found.start()])
        parts.append(el("code", found[1]) if found[1] else el("strong", found[2]))
        end = found.end()
    return join(*parts, text[end:])


def paragraphs(text: str) -> Html:
    return join(*(el("p", inline(part)) for part in text.strip().split("\n\n")))
