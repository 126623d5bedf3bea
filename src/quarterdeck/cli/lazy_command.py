"""A command whose module is imported when the command is called, so that each command loads only what it needs."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class LazyCommand(TyperCommand):
    """`target` is `module:name` of a Typer app or of a function. `summary` is shown in the list of commands."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._target = target

    def load(self) -> TyperCommand | TyperGroup:
        module, _, attribute = self._target.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(self.name)(found)
        command = typer.main.get_command(app)
        assert isinstance(command, TyperCommand)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context is that of the loaded command, which typer then invokes. A group without a verb shows help."""
        loaded = self.load()
        if isinstance(loaded, TyperGroup) and not args and not extra.get("resilient_parsing"):
            args = ["--help"]
        return loaded.make_context(info_name, args, parent, **extra)
