"""The name and version that the client sends to the server."""

from quarterdeck import __version__


def client_name() -> str:
    return f"quarterdeck-python/{__version__}"
