"""Which attachments a request contains, and how they count."""

from functools import partial
from uuid import UUID

import pytest

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.attachments import block, is_text, takes, wanted, with_contents, with_selection
from quarterdeck.models.context import fit_turns, turn_tokens
from quarterdeck.models.model import AssistantTurn, Attachment, AttachmentContent, Turn, UserTurn

SETTINGS = ModelSettings(attachment_bytes=1000, attachment_text_bytes=100)


def attachment(name: str, media_type: str, size: int) -> Attachment:
    path = f"attachments/{name}"
    return Attachment(file_id=UUID(int=1), name=name, media_type=media_type, bytes=size, sha256=name, path=path)


def turns(*attachments: Attachment) -> list[Turn]:
    """One exchange for each."""
    found: list[Turn] = []
    for one in attachments:
        found += [UserTurn("look", attachments=(one,)), AssistantTurn("seen", [])]
    return found


@pytest.mark.parametrize(
    ("media_type", "is_taken", "text"),
    [
        ("text/markdown", True, True),
        ("text/plain; charset=utf-8", True, True),
        ("application/json", True, True),
        ("application/x-sh", True, True),
        ("image/svg+xml", True, True),
        ("image/png", True, False),
        ("application/pdf", True, False),
        ("image/tiff", False, False),
        ("application/zip", False, False),
        ("application/octet-stream", False, False),
    ],
)
def test_what_models_take(media_type: str, is_taken: bool, text: bool) -> None:
    for model in ("demo", "openai:gpt-5", "openai-chat:gpt-5", "anthropic:claude-sonnet-5"):
        assert takes(model, media_type) is is_taken
    # A model of an endpoint. It refuses what it does not take.
    assert takes("gpu:model", media_type) is is_taken
    assert takes("groq:model", media_type) is (is_taken and media_type != "application/pdf")
    assert takes("cohere:model", media_type) is text
    assert is_text(media_type) is text


def test_the_newest_are_sent_within_the_limit() -> None:
    sent = turns(
        attachment("old.png", "image/png", 300),
        attachment("big.pdf", "application/pdf", 2000),
        attachment("log.txt", "text/plain", 5000),
        attachment("new.png", "image/png", 800),
    )
    # A part of the text is enough. The oldest image does not fit beside the others.
    assert wanted(with_selection(sent, partial(takes, "demo"), SETTINGS, 100_000)) == {"log.txt": 100, "new.png": 800}
    # An image counts as 1,600 tokens, and attachments have half of the context.
    assert wanted(with_selection(sent, partial(takes, "demo"), SETTINGS, 3000)) == {"log.txt": 100}
    assert wanted(with_selection(sent, partial(takes, "cohere:model"), SETTINGS, 100_000)) == {"log.txt": 100}


def test_they_count_towards_the_context() -> None:
    sent = turns(attachment("a.png", "image/png", 300), attachment("b.txt", "text/plain", 90))
    plain, picture = (
        turn_tokens(UserTurn("look")),
        turn_tokens(with_selection(sent, partial(takes, "demo"), SETTINGS, 9999)[0]),
    )
    assert picture > plain + 1600
    kept, dropped = fit_turns(with_selection(sent, partial(takes, "demo"), SETTINGS, 100_000), 1000, "")
    assert (len(kept), dropped) == (2, 2), "the exchange with the image does not fit"


def test_the_prompt_says_what_is_missing() -> None:
    long, lost = attachment("long.txt", "text/plain", 5000), attachment("lost.txt", "text/plain", 5)
    both: list[Turn] = [UserTurn("look", attachments=(long, lost))]
    [turn] = with_contents(with_selection(both, partial(takes, "demo"), SETTINGS, 9999), {"long.txt": b"x" * 100})
    assert isinstance(turn, UserTurn)
    shown, told = (block(*pair) for pair in zip(turn.attachments, turn.contents, strict=True))
    assert "path in the sandbox: attachments/long.txt). Here are its first 100 bytes.]\n" + "x" * 100 in shown
    assert told.endswith("Its content could not be read.]")
    assert "left out" in block(long, AttachmentContent(note="Its content is left out."))
