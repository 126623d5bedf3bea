"""Encrypted secrets: bound to their webhook, useless without the key, readable with every key that is kept."""

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.secret_encryption import KEY_FILE, EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import EncryptionSettings

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (0xA7, 0x5C))


def with_keys(*keys: str) -> SecretCipher:
    return SecretCipher(EncryptionSettings(keys=",".join(keys)), Path("/nowhere"))


def test_an_encrypted_secret_can_be_decrypted_and_not_read() -> None:
    webhook_id, secret = uuid4(), os.urandom(32)
    encrypted = with_keys(NEW).encrypt(webhook_id, secret)
    assert secret not in encrypted
    assert with_keys(NEW).decrypt(webhook_id, encrypted) == secret
    assert with_keys(NEW).encrypt(webhook_id, secret) != encrypted, "never the same twice"


def test_a_secret_is_bound_to_its_webhook() -> None:
    encrypted = with_keys(NEW).encrypt(uuid4(), b"secret")
    with pytest.raises(EncryptionKeyError, match="changed"):
        with_keys(NEW).decrypt(uuid4(), encrypted)


@pytest.mark.parametrize("index", [0, 8, 20, -1])
def test_a_changed_byte_is_noticed(index: int) -> None:
    webhook_id = uuid4()
    encrypted = bytearray(with_keys(NEW).encrypt(webhook_id, b"secret"))
    encrypted[index] ^= 1
    with pytest.raises(EncryptionKeyError):
        with_keys(NEW).decrypt(webhook_id, bytes(encrypted))


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    webhook_id = uuid4()
    before = with_keys(OLD).encrypt(webhook_id, b"secret")
    both = with_keys(NEW, OLD)
    assert both.decrypt(webhook_id, before) == b"secret"
    assert not both.is_current(before)
    after = both.encrypt(webhook_id, b"secret")
    assert both.is_current(after)
    assert with_keys(NEW).decrypt(webhook_id, after) == b"secret"
    with pytest.raises(EncryptionKeyError, match="is missing"):
        with_keys(OLD).decrypt(webhook_id, after)


@pytest.mark.parametrize("keys", ["x", OLD[:-4], f"{OLD},", f"{OLD},{OLD[:20]}", "é", f"{OLD};{NEW}"])
def test_invalid_keys_are_refused_and_not_shown(keys: str) -> None:
    with pytest.raises(EncryptionKeyError, match="QUARTERDECK_ENCRYPTION_KEYS") as refused:
        with_keys(keys).encrypt(uuid4(), b"secret")
    assert OLD not in str(refused.value)
    assert OLD[:20] not in str(refused.value)


def test_a_file_is_made_for_its_owner_alone_and_read_by_others_later(tmp_path: Path) -> None:
    webhook_id = uuid4()
    reader = SecretCipher(EncryptionSettings(), tmp_path)
    with pytest.raises(EncryptionKeyError):
        reader.decrypt(webhook_id, bytes(60))
    assert not (tmp_path / KEY_FILE).exists(), "who only reads makes no key"
    encrypted = SecretCipher(EncryptionSettings(), tmp_path).encrypt(webhook_id, b"secret")
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    assert reader.decrypt(webhook_id, encrypted) == b"secret"


def test_a_key_that_is_added_to_the_file_is_found(tmp_path: Path) -> None:
    webhook_id = uuid4()
    running = SecretCipher(EncryptionSettings(), tmp_path)
    running.encrypt(webhook_id, b"x")
    file = tmp_path / KEY_FILE
    file.write_text(f"{NEW}\n{file.read_text()}")
    encrypted = SecretCipher(EncryptionSettings(), tmp_path).encrypt(webhook_id, b"secret")
    assert running.decrypt(webhook_id, encrypted) == b"secret"


def test_a_folder_that_cannot_be_written_is_a_clear_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EncryptionKeyError, match="cannot be read or created"):
        SecretCipher(EncryptionSettings(), tmp_path / "file").encrypt(uuid4(), b"secret")


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from uuid import UUID
from quarterdeck.core.settings import EncryptionSettings
from quarterdeck.core.secret_encryption import SecretCipher
cipher = SecretCipher(EncryptionSettings(), Path(sys.argv[1]))
sys.stdin.readline()
print(cipher.encrypt(UUID(int=1), b"secret").hex())
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
    cipher = SecretCipher(EncryptionSettings(), tmp_path)
    assert {cipher.decrypt(UUID(int=1), bytes.fromhex(output)) for output in outputs} == {b"secret"}
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_a_digest_depends_on_the_secret_and_on_the_key() -> None:
    one, other = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    assert with_keys(one, other).digest("secret") == with_keys(one).digest("secret")
    assert len({with_keys(one).digest("secret"), with_keys(other).digest("secret"), with_keys(one).digest("x")}) == 3
