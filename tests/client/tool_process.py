"""A process that serves a tool: `python -m tests.client.tool_process KIND URL KEY SESSION FOLDER NAME`.

The tool writes each call into the file NAME and returns when the file `go-N` of its argument exists."""

import asyncio
import sys
import time
from pathlib import Path

from quarterdeck.client import AsyncClient, Client


def main(kind: str, url: str, key: str, session_id: str, folder: str, name: str) -> None:
    def work(number: int) -> str:
        with (Path(folder) / name).open("a") as file:
            file.write(f"{number}\n")
        while not (Path(folder) / f"go-{number}").exists():
            time.sleep(0.02)
        return f"{number} by {name}"

    async def serve() -> None:
        async with AsyncClient(url, key) as client:
            await client.serve_tools(session_id, {"work": work})

    if kind == "async":
        asyncio.run(serve())
    else:
        with Client(url, key) as client:
            client.serve_tools(session_id, {"work": work})


if __name__ == "__main__":
    main(*sys.argv[1:])
