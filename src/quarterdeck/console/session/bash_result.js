// The result of the tool `bash`: the output of the command and how it ended.

/** `{output, badge: {text, tone} | null}` of a result. */
export function bashOutcome(result) {
  return { output: result, badge: null };
}
