"""Sealed secrets: bound to their webhook, useless without the key, readable by every key that is kept."""

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.settings import WebhookSettings
from quarterdeck.webhooks.sealing import KEY_FILE, Sealer, SealingFault

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (0xA7, 0x5C))


def with_keys(*keys: str) -> Sealer:
    return Sealer(WebhookSettings(sealing_keys=",".join(keys)), Path("/nowhere"))


def test_what_was_sealed_is_opened_and_is_not_there_to_be_read() -> None:
    webhook_id, secret = uuid4(), os.urandom(32)
    sealed = with_keys(NEW).seal(webhook_id, secret)
    assert secret not in sealed
    assert with_keys(NEW).open(webhook_id, sealed) == secret
    assert with_keys(NEW).seal(webhook_id, secret) != sealed, "never the same twice"


def test_a_sealed_secret_is_of_no_use_to_another_webhook() -> None:
    sealed = with_keys(NEW).seal(uuid4(), b"secret")
    with pytest.raises(SealingFault, match="changed"):
        with_keys(NEW).open(uuid4(), sealed)


@pytest.mark.parametrize("place", [0, 8, 20, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    webhook_id = uuid4()
    sealed = bytearray(with_keys(NEW).seal(webhook_id, b"secret"))
    sealed[place] ^= 1
    with pytest.raises(SealingFault):
        with_keys(NEW).open(webhook_id, bytes(sealed))


def test_the_first_key_seals_and_every_key_opens() -> None:
    webhook_id = uuid4()
    before = with_keys(OLD).seal(webhook_id, b"secret")
    both = with_keys(NEW, OLD)
    assert both.open(webhook_id, before) == b"secret"
    assert not both.is_newest(before)
    after = both.seal(webhook_id, b"secret")
    assert both.is_newest(after)
    assert with_keys(NEW).open(webhook_id, after) == b"secret"
    with pytest.raises(SealingFault, match="not among"):
        with_keys(OLD).open(webhook_id, after)


@pytest.mark.parametrize("keys", ["x", OLD[:-4], f"{OLD},", f"{OLD},{OLD[:20]}", "é", f"{OLD};{NEW}"])
def test_keys_that_make_no_sense_are_refused_and_not_shown(keys: str) -> None:
    with pytest.raises(SealingFault, match="QUARTERDECK_WEBHOOK_SEALING_KEYS") as refused:
        with_keys(keys).seal(uuid4(), b"secret")
    assert OLD not in str(refused.value)
    assert OLD[:20] not in str(refused.value)


def test_a_file_is_made_for_its_owner_alone_and_read_by_others_later(tmp_path: Path) -> None:
    webhook_id = uuid4()
    reader = Sealer(WebhookSettings(), tmp_path)
    with pytest.raises(SealingFault):
        reader.open(webhook_id, bytes(60))
    assert not (tmp_path / KEY_FILE).exists(), "who only reads makes no key"
    sealed = Sealer(WebhookSettings(), tmp_path).seal(webhook_id, b"secret")
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    assert reader.open(webhook_id, sealed) == b"secret"


def test_a_key_that_is_added_to_the_file_is_found(tmp_path: Path) -> None:
    webhook_id = uuid4()
    running = Sealer(WebhookSettings(), tmp_path)
    running.seal(webhook_id, b"x")
    file = tmp_path / KEY_FILE
    file.write_text(f"{NEW}\n{file.read_text()}")
    sealed = Sealer(WebhookSettings(), tmp_path).seal(webhook_id, b"secret")
    assert running.open(webhook_id, sealed) == b"secret"


def test_a_folder_that_cannot_be_written_is_a_clear_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SealingFault, match="cannot be read or made"):
        Sealer(WebhookSettings(), tmp_path / "file").seal(uuid4(), b"secret")


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from uuid import UUID
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.webhooks.sealing import Sealer
sealer = Sealer(WebhookSettings(), Path(sys.argv[1]))
sys.stdin.readline()
print(sealer.seal(UUID(int=1), b"secret").hex())
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert len({output[:16] for output in outputs}) == 1, "one key, whose id all begin with"
    sealer = Sealer(WebhookSettings(), tmp_path)
    assert {sealer.open(UUID(int=1), bytes.fromhex(output)) for output in outputs} == {b"secret"}
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
