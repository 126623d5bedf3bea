"""Figures as a table for the person who waits, and as JSON for whoever compares."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from bench.figures import Figure

RESULTS = Path(__file__).parent / "results"


def table_of(title: str, figures: Sequence[Figure]) -> Table:
    table = Table(title=title)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("target", justify="right")
    for figure in figures:
        decimals = 0 if abs(figure.value) >= 1000 else 2 if abs(figure.value) < 10 else 1
        value = f"{figure.value:,.{decimals}f} {figure.unit}"
        target = "" if figure.target is None else f"≤ {figure.target:g} {figure.unit}"
        colour = {None: "", True: "green", False: "red"}[figure.met]
        table.add_row(figure.name, value, target, style=colour)
    return table


def write_json(name: str, figures: Sequence[Figure], took_seconds: float, load_before: float, **more: object) -> Path:
    """`more` is what stands behind the figures."""
    shown = [{**msgspec.to_builtins(figure), "met": figure.met} for figure in figures]
    return write_result(name, took_seconds, load_before, figures=shown, **more)


def write_result(name: str, took_seconds: float, load_before: float, **found: object) -> Path:
    result = {
        "taken_at": datetime.now(UTC),
        "took_seconds": round(took_seconds, 1),
        "machine": _machine(load_before),
        **found,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    return path


def _machine(load_before: float) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        # The load of the minute before: what else the machine was doing.
        "load_before": round(load_before, 2),
    }
