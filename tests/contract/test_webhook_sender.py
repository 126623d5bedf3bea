"""The sender against names and receivers that mean harm. Names are resolved by the test, connections are real."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quarterdeck.core.settings import WebhookSettings
from quarterdeck.outbound.http_client import OutboundError, UnreachableError
from quarterdeck.outbound.rules import IpAddress
from quarterdeck.webhooks.sender import Sender
from tests.receivers import Behaviour, Receiver, answering, babbling, hanging, receiving, resetting, trickling

_WORKSPACE_ID = uuid4()
LAX = WebhookSettings(allow_private_addresses=True, allow_http=True, timeout_seconds=30)
STRICT = WebhookSettings(allow_http=True, timeout_seconds=30)


class Names:
    """A name server whose answers change with every question."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[IpAddress]:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [ip_address(text) for text in answer]


@contextmanager
def sending(
    settings: WebhookSettings, names: Names | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Sender]:
    sender = Sender(settings, resolve=names, tls=tls)
    try:
        yield sender
    finally:
        sender.close()


def named(receiver: Receiver, name: str = "receiver.test", scheme: str = "http") -> str:
    return f"{scheme}://{name}:{receiver.port}/hook?x=1"


async def test_sender_posts_the_given_body() -> None:
    async with receiving(answering(201, "Retry-After: 7\r\n")) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender:
            answered = await sender.post(_WORKSPACE_ID, named(receiver), {"webhook-id": "x"}, b"body")
    assert (answered.status, answered.retry_after) == (201, "7")
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hook?x=1", b"body")
    assert received.headers["host"] == f"receiver.test:{receiver.port}"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["webhook-id"] == "x"


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["2606:4700:4700::1111", "::1"],
        ["8.8.8.8", "169.254.169.254"],
        ["::ffff:127.0.0.1"],
    ],
    ids=lambda answer: "+".join(answer),
)
async def test_one_private_address_among_those_of_a_name_is_enough_to_refuse_it(answer: list[str]) -> None:
    async with receiving() as receiver:
        with (
            sending(STRICT, Names(answer)) as sender,
            pytest.raises(UnreachableError) as refused,
        ):
            await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")
    assert receiver.received == []
    assert not any(address in str(refused.value) for address in answer), "what is inside is not told"
    assert "not public" in refused.value.detail


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    """Rebinding: the second answer would lead elsewhere. Nothing else here knows the name."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with receiving() as receiver:
        with sending(LAX, names) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")).status == 204
        assert names.asked == [("receiver.test", receiver.port)]


async def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    async with receiving() as receiver:
        with sending(LAX, Names(["127.0.0.9", "127.0.0.1"])) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")).status == 204


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    async with receiving() as inner, receiving(answering(status, f"Location: {inner.url()}\r\n")) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")).status == status
    assert inner.received == []


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with sending(LAX, Names(["127.0.0.1"])) as sender:
            await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")
    assert (len(proxy.received), len(receiver.received)) == (0, 1)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(hanging, "No response within 0.5 seconds"), (trickling, "No response within 0.5 seconds")],
    ids=["hanging", "trickling"],
)
async def test_an_attempt_has_one_deadline(behaviour: Behaviour, reason: str) -> None:
    settings = WebhookSettings(allow_private_addresses=True, allow_http=True, timeout_seconds=0.5)
    async with receiving(behaviour) as receiver:
        with sending(settings, Names(["127.0.0.1"])) as sender, pytest.raises(OutboundError, match=reason):
            await asyncio.wait_for(sender.post(_WORKSPACE_ID, named(receiver), {}, b"body"), 30)


@pytest.mark.parametrize(
    ("behaviour", "reason"), [(resetting, "closed|incomplete"), (babbling, "invalid")], ids=["resetting", "babbling"]
)
async def test_malformed_responses_fail(behaviour: Behaviour, reason: str) -> None:
    async with receiving(behaviour) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender, pytest.raises(OutboundError, match=reason):
            await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")


async def test_of_the_body_of_an_answer_little_is_read() -> None:
    sent = 0

    async def flooding(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with receiving(flooding) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")).status == 200
    assert sent < 32 * 1024 * 1024, "what fits into the buffers of the system"


async def test_the_end_of_a_body_is_not_waited_for() -> None:
    async def stalling(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
        await writer.drain()
        await asyncio.sleep(60)

    async with receiving(stalling) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver), {}, b"body")).status == 200


async def test_every_host_that_cannot_be_reached_gives_the_same_message() -> None:
    """A name that does not exist, one that leads inside, a closed port, a URL that the settings refuse by now. Only the
    operator's log tells them apart."""
    async with receiving() as receiver:
        closed = named(receiver)
    told = {}
    for case, settings, names, url in (
        ("does not resolve", STRICT, Names([]), closed),
        ("not public: 10.0.0.7", STRICT, Names(["10.0.0.7"]), closed),
        ("not public: 127.0.0.1", STRICT, Names(["8.8.8.8", "127.0.0.1"]), closed),
        ("no connection to 127.0.0.1", LAX, Names(["127.0.0.1"]), closed),
        ("no connection to 127.0.0.1", LAX, Names(["127.0.0.9", "127.0.0.1"]), closed),
        ("public address", STRICT, Names(["8.8.8.8"]), "http://127.0.0.1/"),
        ("public address", STRICT, Names(["8.8.8.8"]), "http://localhost/"),
    ):
        with sending(settings, names) as sender, pytest.raises(UnreachableError) as refused:
            await sender.post(_WORKSPACE_ID, url, {}, b"body")
        assert case in refused.value.detail
        told[case] = str(refused.value)
    (message,) = set(told.values())
    assert "could not be reached" in message


@pytest.mark.parametrize("url", ["http://0x7f000001:{}/", "http://localhost:{}/", "http://[::ffff:127.0.0.1]:{}/"])
async def test_the_rules_of_addresses_hold_when_it_is_sent_too(url: str) -> None:
    """Settings may have become stricter since a webhook was stored. Resolved by the system here."""
    async with receiving() as receiver:
        with sending(STRICT) as sender, pytest.raises(OutboundError):
            await sender.post(_WORKSPACE_ID, url.format(receiver.port), {}, b"body")
    assert receiver.received == []


async def test_names_are_resolved_by_the_system_by_default() -> None:
    async with receiving() as receiver:
        with sending(LAX) as sender:
            assert (await sender.post(_WORKSPACE_ID, f"http://localhost:{receiver.port}/", {}, b"body")).status == 204


# --- TLS ---


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side with a certificate for `name`, and a client's side that trusts it."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, private)
    return server, ssl.create_default_context(cafile=str(chain))


async def test_the_certificate_is_checked_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "receiver.test")
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)
    async with receiving(tls=server) as receiver:
        with sending(LAX, Names(["127.0.0.1"]), client) as sender:
            assert (await sender.post(_WORKSPACE_ID, named(receiver, scheme="https"), {}, b"body")).status == 204
            with pytest.raises(OutboundError, match="certificate"):
                await sender.post(_WORKSPACE_ID, named(receiver, "other.test", "https"), {}, b"body")
            with pytest.raises(OutboundError, match="certificate"):
                await sender.post(_WORKSPACE_ID, f"https://127.0.0.1:{receiver.port}/", {}, b"body")
    assert asked[:2] == ["receiver.test", "other.test"]
    assert len(receiver.received) == 1


async def test_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    server, _ = certificate(tmp_path, "receiver.test")
    async with receiving(tls=server) as receiver:
        with sending(LAX, Names(["127.0.0.1"])) as sender, pytest.raises(OutboundError, match="certificate"):
            await sender.post(_WORKSPACE_ID, named(receiver, scheme="https"), {}, b"body")
    assert receiver.received == []
