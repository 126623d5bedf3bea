// The result of the tool `bash`: the output of the command and how it ended.

// At the end, before a notice about removed files: `[Exit code 2.]`, or with the reason why the command was stopped.
const EXIT = /\n?\[(?:([^\n[]{1,300}) )?Exit code (\d+)\.\](?=(?:\n\[[^\n]*\])*$)/;
const STOPPED = /^The command was stopped because (.*)\.$/;
const NO_OUTPUT = "[No output.]";

/** `{output, badges: [{text, tone}]}` of a result. */
export function bashOutcome(result) {
  const match = EXIT.exec(result);
  if (match === null) return { output: result.startsWith(NO_OUTPUT) ? result.slice(NO_OUTPUT.length) : result, badges: [] };
  const [found, reason, code] = match;
  const output = result.slice(0, match.index) + result.slice(match.index + found.length);
  return { output, badges: [reason && { text: reason.replace(STOPPED, "Stopped: $1"), tone: "warn" }, { text: `Exit code ${code}`, tone: "bad" }].filter(Boolean) };
}
