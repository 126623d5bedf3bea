// Turns a chosen archive or folder into a bundle that can be pushed.

import { createArchive } from "./tar.js";

const SKILL_MD = "SKILL.md";
// Never packed. The browser does not read ignore files, so common build output and secrets are listed here.
const EXCLUDED_NAMES = new Set([
  ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache",
  ".env", ".idea", ".DS_Store", "Thumbs.db",
]);
const EXCLUDED_SUFFIX = ".pyc";
const IGNORE_FILES = new Set([".gitignore", ".skillignore"]);
// Far above the server's limit. Stops early if the user drops a home folder by mistake.
const MAX_FILES = 50_000;
// The frontmatter is only searched for a name.
const HEAD_BYTES = 64 * 1024;

export function isArchive(name) {
  return /\.(tar\.gz|tgz)$/i.test(name);
}

/**
 * A bundle has `source`, `suggestedName`, `files` (null for an archive), `skipped`, `hasIgnoreFiles`, `bytes` and
 * `archive()`, which returns the same bytes each time, so that a retry is the same request.
 */
export function archiveBundle(file) {
  return {
    source: file.name,
    suggestedName: file.name.replace(/\.(tar\.gz|tgz)$/i, ""),
    files: null,
    skipped: 0,
    hasIgnoreFiles: false,
    bytes: file.size,
    archive: async () => file,
  };
}

export async function folderBundle(folder, signal) {
  const found = { files: [], skipped: 0, hasIgnoreFiles: false };
  await walk(folder, "", found, signal);
  found.files.sort((a, b) => (a.sortKey < b.sortKey ? -1 : 1));
  const skillMd = found.files.find((one) => one.path === SKILL_MD);
  if (!skillMd) throw new Error(missingSkillMd(folder.name, found.files));
  let archive = null;
  return {
    ...found,
    source: folder.name,
    suggestedName: (await frontmatterName(skillMd.file)) ?? folder.name,
    bytes: found.files.reduce((sum, one) => sum + one.file.size, 0),
    archive: async (stopSignal) => (archive ??= await createArchive(found.files, stopSignal)),
  };
}

async function walk(folder, prefix, found, signal) {
  signal.throwIfAborted();
  for (const entry of await folder.entries()) {
    const path = prefix + entry.name;
    if (EXCLUDED_NAMES.has(entry.name) || entry.name.endsWith(EXCLUDED_SUFFIX)) {
      found.skipped += 1;
    } else if (entry.entries) {
      await walk(entry, `${path}/`, found, signal);
    } else {
      found.hasIgnoreFiles ||= IGNORE_FILES.has(entry.name);
      found.files.push({ path, sortKey: utf8(path), file: await entry.file() });
      if (found.files.length > MAX_FILES) {
        throw new Error(`The folder contains more than ${MAX_FILES.toLocaleString("en")} files. Is it the right folder?`);
      }
    }
  }
}

/** One character per UTF-8 byte: `qd skills push` sorts paths by bytes. */
function utf8(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function missingSkillMd(folderName, files) {
  const nested = files.find((one) => one.path.endsWith(`/${SKILL_MD}`));
  const hint = nested ? ` Found ${nested.path}: choose its folder instead.` : "";
  return `${folderName} has no ${SKILL_MD} at its root.${hint}`;
}

/** The name in the frontmatter if it has a simple form, else null. It is only a suggestion: the server parses the YAML. */
async function frontmatterName(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  const frontmatter = /^---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)/s.exec(head);
  const name = frontmatter && /^name:[ \t]*["']?([a-z0-9-]{1,64})["']?[ \t]*\r?$/m.exec(frontmatter[1]);
  return name ? name[1] : null;
}
