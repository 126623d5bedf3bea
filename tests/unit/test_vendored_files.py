"""The libraries of the console and the API reference are unchanged copies, and NOTICE names their versions."""

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "codegen/vendor"
CONSOLE = ROOT / "src/quarterdeck/console/vendor"
REFERENCE = ROOT / "src/quarterdeck/api_reference/vendor"


def test_vendored_files_match_their_checksums() -> None:
    lines = [line.split() for line in (SOURCE / "checksums.txt").read_text().splitlines()]
    wanted = {name: checksum for checksum, name in lines}
    found = {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in (CONSOLE, REFERENCE, ROOT / "licenses")
        for path in folder.iterdir()
    }
    assert found == wanted, "run `make vendor`"


def test_notice_names_the_locked_versions() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    notice = (ROOT / "NOTICE").read_text()
    names = {
        "markdown-it": ("markdown-it", CONSOLE / "markdown-it.js"),
        "DOMPurify": ("dompurify", CONSOLE / "dompurify.js"),
        "highlight.js": ("@highlightjs/cdn-assets", CONSOLE / "highlight.js"),
        "Swagger UI": ("swagger-ui-dist", REFERENCE / "swagger-ui.js"),
    }
    for name, (package, vendored) in names.items():
        version = packages[f"node_modules/{package}"]["version"]
        assert f"{name} {version} " in notice
        assert f"{package} {version}," in vendored.read_text().splitlines()[0]
    assert not any("resolved" in package for package in packages.values()), "no address of a registry"
