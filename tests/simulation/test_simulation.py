"""The commands of docs/scale.md, and a small failover. `make simulation` runs all of it."""

import re
import shlex

from tests.pages import ROOT
from tests.simulation.command import parse_arguments


def test_the_documented_commands_are_valid() -> None:
    pages = [ROOT / "docs" / name for name in ("scale.md", "reliability.md", "operations.md")]
    commands = [
        found for page in pages for found in re.findall(r'`make simulation(?: ARGS="(.*?)")?`', page.read_text())
    ]
    assert len(commands) > 3
    for arguments in commands:
        parse_arguments(shlex.split(arguments))
