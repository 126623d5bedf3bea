// Tokens and cost as text.

/** `$0`, `$0.0107`, `$3.50`, `$1,200.00`: at least two significant digits. */
export function formatCost(usd) {
  if (usd === 0) return "$0";
  if (usd < 0.0001) return "<$0.0001";
  const digits = usd < 0.1 ? 4 : 2;
  return `$${usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

/** Null if no model was called. */
export function costText({ input_tokens: input, output_tokens: output, cost_usd: cost }) {
  if (input + output === 0) return null;
  return cost === null ? "Unknown price" : formatCost(cost);
}

/** `1,840 tokens in (65 % cached), 212 out`. Null if no model was called. */
export function tokensText({ input_tokens: input, cached_tokens: cached, output_tokens: output }) {
  if (input + output === 0) return null;
  const ofCache = cached > 0 ? ` (${Math.round((100 * cached) / input)} % cached)` : "";
  return `${input.toLocaleString("en")} tokens in${ofCache}, ${output.toLocaleString("en")} out`;
}
