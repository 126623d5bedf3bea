"""Writes the synchronous modules of the client from the asynchronous ones.

`async` and `await` are left out, and names lose their `Async` or `async_`. Where the two clients differ, the code for
the synchronous one follows on the same line, after `# sync:`.
"""

import re

_NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
}
_MARK = re.compile(r"^( *)(?:.*  )?# sync: ?(.*)$", re.MULTILINE)
_KEYWORD = re.compile(r"\b(?:async (?=def |for |with )|await )")
_PREFIX = re.compile(r"\b(_?)(?:Async(?=[A-Z])|async_(?=[a-z]))")
_NAME = re.compile(rf"\b({'|'.join(_NAMES)})\b")


def sync_text(text: str) -> str:
    text = _KEYWORD.sub("", _MARK.sub(r"\1\2", text))
    return _NAME.sub(lambda found: _NAMES[found[1]], _PREFIX.sub(r"\1", text))
