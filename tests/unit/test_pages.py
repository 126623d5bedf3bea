"""No command in the README or the docs is left to chance: each fenced block is run by a test, or says why not."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT, Block, all_blocks, blocks_of, page_names

# Drawings and listings: nobody pastes these.
PICTURES = {"text", "mermaid"}
# Why a block is not run, and which. Each is a command that no test has tried; `make deploy-run` runs those of systemd
# and of containers.
_ENDPOINTS = next(block for block in all_blocks("docs/use/models.md") if block.language == "sh")
_CLAUDE_CODE = next(block for block in all_blocks("docs/use/mcp-endpoint.md") if block.language == "sh")
_NPM = [block for block in all_blocks("docs/use/generated-clients.md") if block.section == "TypeScript"]
_DEPLOYING = all_blocks("docs/run/install.md")
_SIGNED_IN = [
    block
    for page in ("docs/use/cli.md", "docs/use/people.md")
    for block in all_blocks(page)
    if block.not_run is not None
]
_JOBS = [block for block in all_blocks("docs/use/trusted-jobs.md") if block.not_run is not None]
_MIGRATE_CHECK = next(block for block in all_blocks("docs/run/upgrades.md") if "migrate --check" in block.text)
_TRACING = all_blocks("docs/run/tracing.md")[0]
NOT_RUN = {
    "it is this suite": ["README.md: make test", "docs/change/adding-an-operation.md: make test"],
    "it needs Claude Code": [f"{_CLAUDE_CODE.page}: {_CLAUDE_CODE.text.strip()}"],
    "it needs a browser": [f"{block.page}: {block.text.strip()}" for block in _SIGNED_IN],
    "it needs a model server": [f"{_ENDPOINTS.page}: {_ENDPOINTS.text.strip()}"],
    "it needs a machine with systemd": [f"{block.page}: {block.text.strip()}" for block in _DEPLOYING[:4]],
    "it needs a container engine": [f"{block.page}: {block.text.strip()}" for block in _DEPLOYING[4:9]],
    "it needs Kubernetes": [f"{block.page}: {block.text.strip()}" for block in _DEPLOYING[9:]],
    "a part of a deploy script": [f"{_MIGRATE_CHECK.page}: {_MIGRATE_CHECK.text.strip()}"],
    "it needs a collector": [f"{_TRACING.page}: {_TRACING.text.strip()}"],
    "it runs in a CI system": [f"{block.page}: {block.text.strip()}" for block in _JOBS],
    "it needs npm": [f"{block.page}: {block.text.strip()}" for block in _NPM],
}


def every_block() -> list[Block]:
    return [block for page in page_names() for block in all_blocks(page)]


def claimed() -> Iterator[Block]:
    """What the tests ask for, as they ask."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if file == Path(__file__):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "blocks_of":
                words = [ast.literal_eval(argument) for argument in node.args]
                yield from blocks_of(*words)


def test_the_blocks_were_found() -> None:
    assert len(every_block()) > 40
    assert {block.language for block in every_block()} >= {"sh", "python", "diff", *PICTURES}


def test_every_block_says_what_it_is() -> None:
    assert [block.location for block in every_block() if not block.language] == []


def test_every_block_is_run_or_says_why_not() -> None:
    run = list(claimed())
    rest = [block for block in every_block() if block not in run and block.language not in PICTURES]
    assert [block.location for block in rest if block.not_run is None] == []
    reasons: dict[str, list[str]] = {}
    for block in rest:
        reasons.setdefault(str(block.not_run), []).append(f"{block.page}: {block.text.strip()}")
    assert reasons == NOT_RUN
