"""How an app asks the model: the stand-in of bench/peers/model.py if there is one, else a fixed text at once."""

import asyncio
import json
import os

FIXED = "Noted."


async def answer(text: str) -> str:
    address = os.environ.get("BENCH_MODEL")
    if address is None:
        return FIXED
    host, _, port = address.partition(":")
    body = json.dumps({"model": "bench", "messages": [{"role": "user", "content": text}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        raw = await reader.read()
    finally:
        writer.close()
    if not raw:
        raise ConnectionError("the model went away")
    content: str = json.loads(raw.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]
    return content
