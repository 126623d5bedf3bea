"""How the console and the API reference are served: the page, its policy, and its files under one hash."""

import gzip
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

import quarterdeck
from quarterdeck.api import static_pages
from tests.raw_http import exchange, request
from tests.world import Server, World, error_of

FOLDER = Path(quarterdeck.__file__).parent / "console"
PLAIN = {"Accept-Encoding": "identity"}
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "dompurify",
}


INLINE = re.compile(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=|//")


def named_in(page: str) -> list[str]:
    return re.findall(r'(?:href|src)="((?:docs/)?assets/[^"]+)"', page)


def policy_of(answer: httpx.Response) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in answer.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


async def test_the_page(world: World) -> None:
    answer = await world.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert policy_of(answer) == POLICY
    # What the policy would refuse is not tried: no script, style or handler inside the page, nothing from elsewhere.
    assert INLINE.findall(answer.text) == []


async def test_the_api_reference(world: World) -> None:
    answer = await world.http.get("/docs")
    not_here = ("require-trusted-types-for", "trusted-types")
    shared = {name: value for name, value in POLICY.items() if name not in not_here}
    assert policy_of(answer) == shared | {"img-src": "data:"}
    assert INLINE.findall(answer.text) == []
    names = named_in(answer.text)
    assert {Path(name).name for name in names} == {"main.js", "style.css", "swagger-ui.js", "swagger-ui.css"}
    for name in names:
        loaded = await world.http.get(f"/{name}")
        assert loaded.headers["content-type"] == TYPES[Path(name).suffix]
        assert loaded.headers["cache-control"] == "public, max-age=31536000, immutable"


async def test_page_is_revalidated_on_every_request(world: World) -> None:
    tag = (await world.http.get("/")).headers["etag"]
    for held in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        answer = await world.http.get("/", headers={"If-None-Match": held})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag), held
    assert (await world.http.get("/", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_every_file_is_named_once_and_kept_for_ever(world: World) -> None:
    names = named_in((await world.http.get("/")).text)
    root = re.match(r"assets/[0-9a-f]{20}/", names[0])
    assert root is not None
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    # A page changes to the last two while a run works or waits.
    files -= {"index.html", "icon_working.svg", "icon_waiting.svg"}
    # main.js is named as a module to have at hand, and again as the one to start with.
    assert sorted(names) == sorted([f"{root[0]}{name}" for name in files] + [f"{root[0]}main.js"])
    assert names.index(f"{root[0]}style/base.css") == min(at for at, name in enumerate(names) if name.endswith(".css"))
    for name in names:
        wanted = (FOLDER / name.removeprefix(root[0])).read_bytes()
        plain = await world.http.get(f"/{name}", headers=PLAIN)
        assert (plain.status_code, plain.content) == (200, wanted), name
        assert plain.headers["content-type"] == TYPES[Path(name).suffix]
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert plain.headers["x-content-type-options"] == "nosniff"
        assert plain.headers["vary"] == "Accept-Encoding"
        assert "content-encoding" not in plain.headers
        packed = await world.http.get(f"/{name}", headers={"Accept-Encoding": "gzip"})
        assert (packed.headers["content-encoding"], packed.content) == ("gzip", wanted), name


async def test_compressed_files_are_sent_only_if_accepted(server: Server, world: World) -> None:
    packed = exchange(server.port, request("GET", "/", "Accept-Encoding: gzip"))
    plain = (await world.http.get("/", headers=PLAIN)).content
    assert gzip.decompress(packed.body) == plain
    assert len(packed.body) < len(plain)
    for accepted in ("br", "gzip;q=0", "*"):
        answer = await world.http.get("/", headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "assets/{hash}/absent.js",
        "assets/{hash}/",
        "assets/{hash}",
        "assets/{hash}/pages",
        "assets/{hash}/index.html",
        "assets/00000000000000000000/main.js",
        "assets/{hash}0/main.js",
        "assets/main.js",
        "assets/{hash}/../../../settings.py",
        "assets/{hash}/..%2f..%2fsettings.py",
        "assets/{hash}/%2e%2e/settings.py",
        "assets/{hash}/pages/../main.js",
        "assets/{hash}//main.js",
        "assets/{hash}/main.js%00",
        "assets/{hash}/main.js%0a",
        "assets/{hash}/pages\\keys.js",
        "assets/{hash}/MAIN.js",
        "index.html",
        "console",
    ],
)
def test_unknown_files_are_404(server: Server, path: str) -> None:
    # Sent as it is written: a client would tidy the path first.
    target = f"/{path.format(hash=static_pages.console().hash)}"
    assert exchange(server.port, request("GET", target)).error() == (404, "not_found")


async def test_head_and_other_methods(world: World) -> None:
    page = await world.http.get("/", headers=PLAIN)
    asset = f"/{named_in(page.text)[0]}"
    for path in ("/", asset):
        whole = await world.http.get(path, headers=PLAIN)
        head = await world.http.head(path, headers=PLAIN)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))
        refused = await world.http.post(path)
        assert error_of(refused) == (405, "invalid_request")
        assert refused.headers["allow"] == "GET, HEAD"


def test_file_names_differ_between_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file, its name or its content; where one ends and the next begins counts too."""
    monkeypatch.setattr(static_pages, "files", lambda _: tmp_path)
    folder = tmp_path / "console"
    (folder / "style").mkdir(parents=True)
    (folder / "index.html").write_text("{assets}{styles}{modules}")
    hashes = []
    for name, text in [("a.js", "one"), ("a.js", "two"), ("b.js", ""), ("style/base.css", "x"), ("style/c.css", "")]:
        (folder / name).write_text(text)
        hashes.append(static_pages.console().hash)
    (folder / "a.js").write_text("twob.js")
    (folder / "b.js").unlink()
    hashes.append(static_pages.console().hash)
    assert len(set(hashes)) == len(hashes)
    assert static_pages.console().hash == hashes[-1]


def test_a_wheel_holds_the_files(tmp_path: Path) -> None:
    root = FOLDER.parents[2]
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("quarterdeck/console/")}
    assert packed == {f"quarterdeck/console/{path.relative_to(FOLDER).as_posix()}" for path in FOLDER.rglob("*.*")}
