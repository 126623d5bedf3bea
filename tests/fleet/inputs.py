"""Texts of the inputs that the load sends, with `TOKEN` for the token of the intent, and the tools of its sessions."""

SHORT_RUNS = (
    *("TOKEN",) * 4,
    "TOKEN\ndemo: steps 2",
    "TOKEN\ndemo: steps 3\ndemo: slow 0.2",
    "TOKEN\ndemo: slow 1",
    "TOKEN\ndemo: fail",
)
# Sessions that nearly always have a run under way.
LONG_RUNS = ("TOKEN\ndemo: steps 9\ndemo: slow 0.8",)
# Runs that call tools with effects and tools of the caller, one or several in a turn.
_NOTE = 'call: add_note {"text": "TOKEN"}'
_LOOK_UP = 'call: look_up {"of": "TOKEN"}'
# Appends a line to a file of the session, and says so.
LOG, APPENDED = "log", "appended\n"
_APPEND = f'call: bash {{"command": "echo TOKEN >> {LOG}; echo appended"}}'
TOOL_RUNS = (
    "TOKEN",
    "note: TOKEN",
    f"TOKEN\n{_NOTE}",
    f"TOKEN\n{_NOTE}\n{_NOTE}",
    f"TOKEN\n{_LOOK_UP}",
    f"TOKEN\n{_NOTE}\n{_LOOK_UP}\ncall: current_time",
    f"TOKEN\n{_APPEND}",
    f"TOKEN\n{_APPEND}\n{_NOTE}\n{_APPEND}",
    "TOKEN\ncall: missing",
)
TOOL_POLICIES: tuple[dict[str, str], ...] = (
    {},
    {"add_note": "allow"},
    {"add_note": "allow"},
    {"add_*": "allow", "look_up": "ask"},
    {"*": "ask"},
    {"add_note": "deny"},
)
CLIENT_TOOL = {"name": "look_up", "description": "Looks something up.", "parameters": {"type": "object"}}
# Reached after the first step of a run, or never.
TOOL_LIMITS: tuple[dict[str, object], ...] = ({}, {}, {"run": {"max_tokens": 20}}, {"session": {"max_tokens": 400}})
