"""`make audit`: asks PyPI which advisories there are about the locked packages.

Exit code 0: none that is not in accepted.toml. 1: some, or an entry there that nobody reports any more. 3: not
every package could be asked about, which says nothing about safety; without a network that is all of them. The tool
itself ends with 0 and "No known vulnerabilities found" then, which is why its report is read here.
"""

import datetime
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from supply.locks import DEV, ROOT, RUNTIME

ACCEPTED = ROOT / "supply" / "accepted.toml"
GOOD, FOUND, UNANSWERED = 0, 1, 3

# Each line of the locks is audited as it is: nothing is resolved, downloaded or installed.
_COMMAND = (sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off",
            "--format", "json", "--desc", "off", "--timeout", "15")  # fmt: skip


class Advisory(Struct, frozen=True):
    id: str
    fix_versions: list[str] = []


class Audited(Struct, frozen=True):
    name: str
    version: str = ""
    vulns: list[Advisory] = []
    # Why it was not.
    skip_reason: str | None = None


class Report(Struct, frozen=True):
    dependencies: list[Audited]
    # Why there is none.
    fault: str = "no packages"


class Accepted(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    package: str
    reviewed: datetime.date
    reason: str


class AcceptedFile(Struct, frozen=True, forbid_unknown_fields=True):
    advisory: list[Accepted] = []


def accepted(text: str) -> list[Accepted]:
    return msgspec.convert(tomllib.loads(text), AcceptedFile).advisory


def judge(report: Report, known: Sequence[Accepted]) -> tuple[int, list[str]]:
    """The exit code, and what to tell."""
    skipped = [one for one in report.dependencies if one.skip_reason is not None]
    found = {(advisory.id, one.name): (advisory, one) for one in report.dependencies for advisory in one.vulns}
    reasons = {(one.id, one.package): one for one in known}
    lines = [f"{one.id} in {one.package}: accepted on {one.reviewed}: {one.reason}" for one in known]
    new = [found[key] for key in found.keys() - reasons.keys()]
    for advisory, one in sorted(new, key=lambda each: (each[1].name, each[0].id)):
        lines.append(f"{one.name} {one.version}: {advisory.id}, mended in {', '.join(advisory.fix_versions) or 'none'}")
    if new:
        return FOUND, lines
    if skipped or not report.dependencies:
        count = f"{len(skipped)} of {len(report.dependencies)}" if skipped else "all"
        why = skipped[0].skip_reason if skipped else report.fault
        return UNANSWERED, [*lines, f"not audited: {count} packages. This says nothing about their safety. {why}"]
    if stale := sorted(reasons.keys() - found.keys()):
        return FOUND, [*lines, *(f"{id} in {package} is not reported any more: remove it" for id, package in stale)]
    return GOOD, [*lines, f"{len(report.dependencies)} packages: no advisory that touches us"]


def ask(locks: Sequence[Path], command: Sequence[str] = _COMMAND) -> Report:
    """Empty when the tool gave no report: it ends with a traceback when it reaches nobody."""
    named = [part for lock in locks for part in ("--requirement", str(lock))]
    done = subprocess.run([*command, *named], capture_output=True, text=True, check=False)
    try:
        return msgspec.json.decode(done.stdout, type=Report)
    except msgspec.DecodeError:
        return Report([], (done.stderr.strip().splitlines() or ["It said nothing."])[-1])


def main() -> int:
    code, lines = judge(ask([RUNTIME, DEV]), accepted(ACCEPTED.read_text("utf-8")))
    for line in lines:
        sys.stdout.write(f"audit: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
