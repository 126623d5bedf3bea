// A gzipped tar, as `qd skills push` writes it: the same content gives the same bytes. Times and owners are left out;
// browsers do not tell whether a file may be executed, so none may.

const BLOCK = 512;
const NAME_BYTES = 100;
const MODE = 0o644;

/** `files`: `{path, file}`, sorted. The archive. */
export async function pack(files, signal) {
  const pieces = tar(files);
  const plain = new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  return new Response(plain.pipeThrough(new CompressionStream("gzip"), { signal })).blob();
}

async function* tar(files) {
  for (const { path, file } of files) {
    yield* headers(path, file.size);
    yield* content(path, file);
    yield padding(file.size);
  }
  yield new Uint8Array(2 * BLOCK);
}

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
    // Chromium refuses to read a file that is another by now; Firefox reads what there is.
    throw new Error(`${path} could not be read, or was changed while it was packed. Choose it again.`);
  }
  if (left !== 0) throw new Error(`${path} was changed while it was packed. Choose it again.`);
}

function padding(size) {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

/** A name that a plain header cannot hold is in an extended one before it. */
function* headers(path, size) {
  const isPlain = /^[\x00-\x7f]*$/.test(path) && path.length <= NAME_BYTES;
  if (!isPlain) {
    const record = extendedRecord("path", path);
    yield header("././@PaxHeader", 0, record.length, "x");
    yield record;
    yield padding(record.length);
  }
  yield header([...path].map((c) => (c <= "\x7f" ? c : "?")).join(""), MODE, size, "0");
}

/** `22 path=some/long/path\n`: the number counts the whole record, itself too. */
function extendedRecord(key, value) {
  const rest = new TextEncoder().encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  const record = new Uint8Array(length);
  record.set(new TextEncoder().encode(String(length)));
  record.set(rest, length - rest.length);
  return record;
}

/** One block of the format `ustar`. */
function header(name, mode, size, type) {
  const block = new Uint8Array(BLOCK);
  const put = (text, at) => block.set(new TextEncoder().encode(text), at);
  const octal = (number, digits) => number.toString(8).padStart(digits, "0");
  put(name.slice(0, NAME_BYTES), 0);
  put(octal(mode, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(0, 11), 136);
  // The sum is taken with blanks in its place.
  put(" ".repeat(8), 148);
  put(type, 156);
  put("ustar\x0000", 257);
  put(
    `${octal(
      block.reduce((sum, byte) => sum + byte, 0),
      6,
    )}\0`,
    148,
  );
  return block;
}
