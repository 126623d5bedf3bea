// What is going to be pushed: an archive as it is, or the files of a folder that belong to the skill.

import { FILES, asBytes, bytesAsText, isLeftOut, readPatterns } from "./ignoring.js";
import { pack } from "./packing.js";

const SKILL_MD = "SKILL.md";
const GIT = ".git";
// Far over what a server takes: who drops a home folder should learn it before the browser has read all of it.
const MOST_FILES = 50_000;
// The frontmatter is looked at for a name only.
const HEAD_BYTES = 64 * 1024;

/** What was chosen cannot be a skill; nothing was sent. */
class NoBundle extends Error {}

export function isArchive(name) {
  return /\.(tar\.gz|tgz)$/i.test(name);
}

/** `archive()` gives the bytes to send. They stay the same, so that sending them again is the same request. */
export function archiveBundle(file) {
  const name = file.name.replace(/\.(tar\.gz|tgz)$/i, "");
  return { from: file.name, suggestedName: name, files: null, leftOut: 0, bytes: file.size, archive: async () => file };
}

export async function folderBundle(folder, signal) {
  const found = { files: [], leftOut: 0 };
  await walk(folder, "", [], found, signal);
  found.files.sort((one, other) => (one.key < other.key ? -1 : 1));
  const skillMd = found.files.find((one) => one.path === SKILL_MD);
  if (!skillMd) throw new NoBundle(await whyNoSkill(folder, found.files));
  let packed = null;
  return {
    from: folder.name,
    suggestedName: (await nameIn(skillMd.file)) ?? folder.name,
    files: found.files,
    leftOut: found.leftOut,
    bytes: found.files.reduce((sum, one) => sum + one.file.size, 0),
    archive: async (stopped) => (packed ??= await pack(found.files, stopped)),
  };
}

async function walk(folder, prefix, above, found, signal) {
  signal.throwIfAborted();
  const entries = await folder.entries();
  const own = await patternsOf(entries);
  const rules = own.length === 0 ? above : [...above, { base: asBytes(prefix), patterns: own }];
  for (const entry of entries) {
    if (entry.name === GIT) continue;
    const path = prefix + entry.name;
    const key = asBytes(path);
    if (isLeftOut(rules, key, Boolean(entry.entries))) {
      found.leftOut += 1;
    } else if (entry.entries) {
      await walk(entry, `${path}/`, rules, found, signal);
    } else {
      found.files.push({ path, key, file: await entry.file() });
      if (found.files.length > MOST_FILES) {
        throw new NoBundle(
          `${folder.name} holds more than ${MOST_FILES.toLocaleString("en")} files. Is it the right folder?`,
        );
      }
    }
  }
}

async function patternsOf(entries) {
  const found = [];
  for (const name of FILES) {
    const entry = entries.find((one) => one.name === name && one.file);
    if (entry) found.push(...readPatterns(bytesAsText(new Uint8Array(await (await entry.file()).arrayBuffer()))));
  }
  return found;
}

async function whyNoSkill(folder, files) {
  const needs = "and a skill needs one at its root.";
  if ((await folder.entries()).some((one) => one.name === SKILL_MD && one.file)) {
    return `${SKILL_MD} is left out by an ignore file, ${needs}`;
  }
  const deeper = files.find((one) => one.path.endsWith(`/${SKILL_MD}`));
  const hint = deeper ? ` There is ${deeper.path}: choose its folder.` : "";
  return `${folder.name} has no ${SKILL_MD}, ${needs}${hint}`;
}

/** The name that the frontmatter gives, if it is written plainly. Only proposed: the server reads it for real. */
async function nameIn(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  const frontmatter = /^---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)/s.exec(head);
  const name = frontmatter && /^name:[ \t]*["']?([a-z0-9-]{1,64})["']?[ \t]*\r?$/m.exec(frontmatter[1]);
  return name ? name[1] : null;
}
