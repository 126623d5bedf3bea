/* global SwaggerUIBundle */
const scheme = matchMedia("(prefers-color-scheme: dark)");
const adopt = () => document.documentElement.classList.toggle("dark-mode", scheme.matches);
scheme.addEventListener("change", adopt);
adopt();

SwaggerUIBundle({
  dom_id: "#reference",
  url: "openapi.json",
  // The address of an operation: #/Sessions/submit_input.
  deepLinking: true,
  // Operations show their schemas themselves.
  defaultModelsExpandDepth: -1,
  displayOperationId: true,
  // No service of another host checks the document.
  validatorUrl: null,
});
