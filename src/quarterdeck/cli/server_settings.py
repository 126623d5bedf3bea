"""The settings of commands that run or manage a server: environment variables, overridden by options."""

import os
from collections.abc import Mapping
from difflib import get_close_matches

import msgspec

from quarterdeck.cli.output import note
from quarterdeck.core.settings import PREFIX, ServerSettings, Settings, SettingsError, read_settings, variables

# Used between our own processes, and by the tests.
_OTHER_VARIABLES = (f"{PREFIX}_LIFELINE_", f"{PREFIX}_TEST_")
# Set by `qd serve` for the processes that it starts. It has warned already.
_LIFELINE = "QUARTERDECK_LIFELINE_FD"


def server_settings(*, host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    if _LIFELINE not in os.environ:
        _warn_about_unknown_variables()
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _warn_about_unknown_variables() -> None:
    for name, nearest in _unknown_variables(os.environ).items():
        hint = f"Did you mean {nearest}?" if nearest else "docs/run/configuration.md lists all settings."
        note(f"qd: warning: unknown variable {name}. {hint}")


def _unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the nearest name of a setting."""
    # Without the prefix, which would make all names similar.
    known = [name.removeprefix(PREFIX) for name in variables()]
    found = {name: name.removeprefix(PREFIX) for name in sorted(environ) if name.startswith(f"{PREFIX}_")}
    nearest = {
        name: get_close_matches(rest, known, n=1)
        for name, rest in found.items()
        if rest not in known and not name.startswith(_OTHER_VARIABLES)
    }
    return {name: PREFIX + matches[0] if matches else None for name, matches in nearest.items()}


def with_server(settings: Settings, **given: object) -> Settings:
    """The settings with options of the command line in place of values from the environment."""
    values = {name: value for name, value in given.items() if value is not None}
    try:
        server = msgspec.convert(msgspec.to_builtins(settings.server) | values, ServerSettings)
    except msgspec.ValidationError as fault:
        raise SettingsError(str(fault)) from None
    return msgspec.structs.replace(settings, server=server)
