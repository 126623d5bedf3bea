"""The libraries of the console are unchanged copies, and NOTICE names their versions."""

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "codegen/console_vendor"


def test_vendored_files_match_their_checksums() -> None:
    lines = [line.split() for line in (SOURCE / "checksums.txt").read_text().splitlines()]
    wanted = {name: checksum for checksum, name in lines}
    folders = (ROOT / "src/quarterdeck/console/vendor", ROOT / "licenses")
    found = {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in folder.iterdir()
    }
    assert found == wanted, "run `make vendor`"


def test_notice_names_the_locked_versions() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    notice = (ROOT / "NOTICE").read_text()
    names = {"markdown-it": "markdown-it", "DOMPurify": "dompurify", "highlight.js": "@highlightjs/cdn-assets"}
    for name, package in names.items():
        version = packages[f"node_modules/{package}"]["version"]
        assert f"{name} {version} " in notice
        vendored = ROOT / "src/quarterdeck/console/vendor" / f"{name.lower().removesuffix('.js')}.js"
        assert f"{package} {version}," in vendored.read_text().splitlines()[0]
    assert not any("resolved" in package for package in packages.values()), "no address of a registry"
