"""The app for `uvicorn --factory`, with settings from the environment as for `qd api`."""

import os

from starlette.types import ASGIApp

from quarterdeck.app import load_app
from quarterdeck.core.settings import read_settings


def create_app() -> ASGIApp:
    return load_app(read_settings(os.environ))
