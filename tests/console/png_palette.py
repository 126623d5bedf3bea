"""Reduces PNG files to 256 colours, so that they are small enough for the repository."""

import base64
import struct
import zlib
from typing import Any

from playwright.async_api import Browser

# Runs in the browser, so that no image library is needed. Keeps the most frequent colours and replaces the others,
# mostly from anti-aliasing, with the nearest of these.
REDUCE = """
async (encoded) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${encoded}`)).blob());
  const {width, height} = image;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0);
  const {data} = context.getImageData(0, 0, width, height);
  const colours = new Uint32Array(width * height);
  const counts = new Map();
  for (let at = 0; at < colours.length; at += 1) {
    const colour = (data[4 * at] << 16) | (data[4 * at + 1] << 8) | data[4 * at + 2];
    colours[at] = colour;
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const byFrequency = (one, other) => counts.get(other) - counts.get(one) || one - other;
  const palette = [...counts.keys()].sort(byFrequency).slice(0, 256);
  const indexes = new Map();
  for (const colour of counts.keys()) {
    let best = 0;
    let least = Infinity;
    for (const [index, one] of palette.entries()) {
      const [red, green, blue] = [16, 8, 0].map((shift) => ((colour >> shift) & 255) - ((one >> shift) & 255));
      const distance = red * red + green * green + blue * blue;
      if (distance < least) [best, least] = [index, distance];
      if (distance === 0) break;
    }
    indexes.set(colour, best);
  }
  let pixels = "";
  for (const colour of colours) pixels += String.fromCharCode(indexes.get(colour));
  return {width, height, palette, pixels: btoa(pixels)};
}
"""


async def reduce_colours(browser: Browser, png: bytes) -> bytes:
    page = await browser.new_page()
    try:
        found: dict[str, Any] = await page.evaluate(REDUCE, base64.b64encode(png).decode())
    finally:
        await page.close()
    width, height = found["width"], found["height"]
    pixels = base64.b64decode(found["pixels"])
    # Each line starts with its filter type; 0 is none.
    lines = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    palette = b"".join(colour.to_bytes(3) for colour in found["palette"])
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
