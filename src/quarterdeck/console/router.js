// Which page is shown: the part of the address behind `#`. The server sees none of it.

/** `[["/sessions/:id", load], …]`; `load` imports a page. The path that matches, with its parameters decoded. */
export function matched(routes, path) {
  for (const [pattern, load] of routes) {
    const params = fitting(pattern.split("/"), path.split("/"));
    if (params !== null) return { load, params };
  }
  return null;
}

function fitting(pattern, path) {
  if (pattern.length !== path.length) return null;
  const params = {};
  for (const [at, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = decoded(path[at]);
    else if (part !== path[at]) return null;
  }
  return Object.values(params).includes("") ? null : params;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

/** `#/skills/a/diff?base=1` is the path `/skills/a/diff` and the query `base=1`. */
export function location() {
  const [path, query = ""] = window.location.hash.slice(1).split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function go(path) {
  window.location.hash = path;
}

/** The same page asked otherwise. It stays as it is: who typed into it goes on typing. */
export function keepQuery(query) {
  const text = new URLSearchParams(query).toString();
  window.history.replaceState(null, "", `#${location().path}${text && `?${text}`}`);
}
