// The tokens of runs and sessions as text.

/** `1,840 tokens in, 212 out`. Null if no model was called. */
export function formatTokens({ input_tokens: input, output_tokens: output }) {
  if (input + output === 0) return null;
  return `${input.toLocaleString("en")} tokens in, ${output.toLocaleString("en")} out`;
}
