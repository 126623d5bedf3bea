"""`make dashboard`: does every panel of the Grafana dashboard show something? Under a minute. Needs Prometheus.

Runs `qd serve` under a small load, a real Prometheus that reads its metrics port, and the queries of the dashboard.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from tests.cli.command import qd_serve
from tests.contract.provider_server import OPENAI, provider, streams
from tests.pages import ROOT
from tests.workers import eventually
from tests.world import free_port

DASHBOARD = ROOT / "deploy" / "grafana" / "quarterdeck.json"
LOAD_SECONDS = 30.0
# Nothing is to be seen if all is well.
EMPTY_WHEN_WELL = {"No connection in time"}
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: quarterdeck
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
# With a price, without one, a failure, and an approval.
INPUTS = (
    ({"model": "openai-chat:gpt-4o"}, "Hello."),
    ({}, "demo: steps 2"),
    ({}, "demo: fail"),
    ({"tool_policy": {"add_note": "ask"}}, "note: ask me"),
)


@contextmanager
def prometheus(program: str, metrics_port: int, folder: Path) -> Iterator[str]:
    (folder / "prometheus.yml").write_text(
        _CONFIG.format(port=metrics_port, rules=ROOT / "deploy" / "prometheus" / "alerts.yml")
    )
    address = f"127.0.0.1:{free_port()}"
    options = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "tsdb", "log.level": "error"}
    command = [program, f"--web.listen-address={address}", *(f"--{name}={value}" for name, value in options.items())]
    process = subprocess.Popen(command, cwd=folder)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


async def load(http: httpx.AsyncClient) -> None:
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        for body, text in INPUTS:
            session = (await http.post("/v1/sessions", json=body)).raise_for_status().json()["id"]
            sent = await http.post(f"/v1/sessions/{session}/events", json={"type": "input", "text": text})
            sent.raise_for_status()
        await asyncio.sleep(0.5)


async def series_of(http: httpx.AsyncClient, panel: dict[str, Any], began: float) -> int:
    """The number of lines of a panel that have a value."""
    found = 0
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "15s").replace("$job", "quarterdeck")
        values = {"query": query, "start": began, "end": time.time(), "step": 1}
        answer = await http.get("/api/v1/query_range", params=values)
        lines = answer.raise_for_status().json()["data"]["result"]
        found += sum(any(value != "NaN" for _, value in line["values"]) for line in lines)
    return found


async def panels_with_data(program: str, folder: Path) -> dict[str, int]:
    metrics_port, began = free_port(), time.time()
    async with provider(*[streams(OPENAI.text("Hello."))] * 10_000) as model:
        with ExitStack() as stack:
            settings = {
                "METRICS_PORT": str(metrics_port),
                "MODEL_OPENAI_BASE_URL": f"{model.url}/v1",
                "RECEIPT_SWEEP_INTERVAL_SECONDS": "1",
            }
            serve = await asyncio.to_thread(
                stack.enter_context, qd_serve(folder / "data", folder / "output", None, **settings)
            )
            queries = stack.enter_context(prometheus(program, metrics_port, folder))
            headers = {"Authorization": f"Bearer {serve.exported('QD_KEY')}"}
            async with (
                httpx.AsyncClient(base_url=serve.url, headers=headers, timeout=60) as http,
                httpx.AsyncClient(base_url=queries, timeout=60) as asked,
            ):
                await load(http)

                async def is_scraped() -> bool:
                    answer = await asked.get("/api/v1/query", params={"query": "sum(quarterdeck_runs_ended_total) > 9"})
                    return bool(answer.json()["data"]["result"])

                await eventually(is_scraped)
                panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if "targets" in panel]
                return {panel["title"]: await series_of(asked, panel, began) for panel in panels}


def main() -> int:
    program = shutil.which("prometheus")
    if program is None:
        sys.stderr.write("Prometheus is missing: apt install prometheus\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="qd-dashboard-") as folder:
        # The embedded PostgreSQL runs as another user if this is root.
        os.chmod(folder, 0o755)
        found = asyncio.run(panels_with_data(program, Path(folder)))
    table = Table("panel", "lines")
    for title, count in found.items():
        table.add_row(title, str(count))
    Console().print(table)
    empty = {title for title, count in found.items() if count == 0} - EMPTY_WHEN_WELL
    Console().print(f"Without data: {', '.join(sorted(empty)) or 'none'}")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
