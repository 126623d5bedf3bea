"""`qd usage`."""

from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, day
from quarterdeck.cli.output import Column, cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from quarterdeck.client import Client
    from quarterdeck.client.models import UsageItem


class GroupBy(StrEnum):
    DAY = "day"
    SESSION = "session"
    MODEL = "model"
    API_KEY = "api-key"


_API_NAMES = {
    GroupBy.DAY: "day",
    GroupBy.SESSION: "session",
    GroupBy.MODEL: "model",
    GroupBy.API_KEY: "api_key",
}
