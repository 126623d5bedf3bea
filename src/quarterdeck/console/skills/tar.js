// Writes a gzipped tar. The content is byte for byte the same as from `qd skills push`: no times, no owners. Browsers do
// not expose the executable bit, so no file is executable.

const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
const MODE = 0o644;

/** `files`: `{path, file}`, sorted by path. Returns a Blob. */
export async function createArchive(files, signal) {
  const chunks = tarChunks(files);
  // Not ReadableStream.from, which Chromium does not have.
  const tar = new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  return new Response(tar.pipeThrough(new CompressionStream("gzip"), { signal })).blob();
}

async function* tarChunks(files) {
  for (const { path, file } of files) {
    yield* headers(path, file.size);
    yield* content(path, file);
    yield padding(file.size);
  }
  yield new Uint8Array(2 * BLOCK_BYTES);
}

/** Chromium fails to read a file that has changed since it was chosen; Firefox returns the new content. */
async function* content(path, file) {
  let left = file.size;
  const reader = file.stream().getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      left -= value.length;
      yield value;
    }
  } catch {
    throw new Error(`${path} could not be read or has changed. Choose the folder again.`);
  }
  if (left !== 0) throw new Error(`${path} has changed. Choose the folder again.`);
}

function padding(size) {
  return new Uint8Array((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
}

/** A path that does not fit into the ustar header is stored in a pax extended header before it. */
function* headers(path, size) {
  const isPlain = /^[\x00-\x7f]*$/.test(path) && path.length <= NAME_BYTES;
  if (!isPlain) {
    const record = paxRecord("path", path);
    yield header("././@PaxHeader", 0, record.length, "x");
    yield record;
    yield padding(record.length);
  }
  yield header([...path].map((c) => (c <= "\x7f" ? c : "?")).join(""), MODE, size, "0");
}

/** `22 path=some/long/path\n`: the length includes its own digits. */
function paxRecord(key, value) {
  const rest = new TextEncoder().encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  const record = new Uint8Array(length);
  record.set(new TextEncoder().encode(String(length)));
  record.set(rest, length - rest.length);
  return record;
}

/** One ustar header block. */
function header(name, mode, size, type) {
  const block = new Uint8Array(BLOCK_BYTES);
  const put = (text, offset) => block.set(new TextEncoder().encode(text), offset);
  const octal = (number, digits) => number.toString(8).padStart(digits, "0");
  put(name.slice(0, NAME_BYTES), 0);
  put(octal(mode, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(0, 11), 136);
  // The checksum is computed with spaces in its own field.
  put(" ".repeat(8), 148);
  put(type, 156);
  put("ustar\x0000", 257);
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  put(`${octal(checksum, 6)}\0`, 148);
  return block;
}
