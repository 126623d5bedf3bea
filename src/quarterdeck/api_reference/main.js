/* global SwaggerUIBundle */
const scheme = matchMedia("(prefers-color-scheme: dark)");
const adopt = () => document.documentElement.classList.toggle("dark-mode", scheme.matches);
scheme.addEventListener("change", adopt);
adopt();

/** Replaces references by what they refer to, except inside of itself. */
function resolved(document, node, above = []) {
  if (Array.isArray(node)) return node.map((item) => resolved(document, item, above));
  if (node === null || typeof node !== "object") return node;
  const address = node.$ref;
  if (typeof address !== "string") {
    return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, resolved(document, value, above)]));
  }
  if (above.includes(address)) return {};
  const target = address.slice(2).split("/").reduce((found, name) => found[name], document);
  return resolved(document, target, [...above, address]);
}

/** Swagger UI's own function takes a second for each operation: it reads the whole document again. */
async function resolveSubtree(document, path) {
  const part = path.reduce((found, name) => found?.[name], document);
  return { spec: resolved(document, part), errors: [] };
}

SwaggerUIBundle({
  dom_id: "#reference",
  url: "openapi.json",
  // An operation has an address: #/Sessions/submit_input.
  deepLinking: true,
  // Operations show their schemas themselves.
  defaultModelsExpandDepth: -1,
  displayOperationId: true,
  // No service of another host checks the document.
  validatorUrl: null,
  plugins: [() => ({ fn: { resolveSubtree } })],
});
