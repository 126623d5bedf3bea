"""The settings of commands that run or manage a server: environment variables, overridden by options."""

import os

from quarterdeck.cli.output import note
from quarterdeck.core.settings import Settings, read_settings, unknown_variables, with_server

# Set by `qd serve` for the processes that it starts. It has warned already.
_LIFELINE = "QUARTERDECK_LIFELINE_FD"


def server_settings(*, host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    if _LIFELINE not in os.environ:
        _warn_about_unknown_variables()
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _warn_about_unknown_variables() -> None:
    for name, nearest in unknown_variables(os.environ).items():
        hint = f"Did you mean {nearest}?" if nearest else "docs/configuration.md lists all settings."
        note(f"qd: warning: unknown variable {name}. {hint}")
