// The address of a page is in the hash of the URL, so the server never sees it.

/** Matches a path against `[["/sessions/:id", load], …]`. Returns `{load, params}` or null. */
export function matchRoute(routes, path) {
  for (const [pattern, load] of routes) {
    const params = matchParams(pattern.split("/"), path.split("/"));
    if (params !== null) return { load, params };
  }
  return null;
}

function matchParams(pattern, path) {
  if (pattern.length !== path.length) return null;
  const params = {};
  for (const [index, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = decode(path[index]);
    else if (part !== path[index]) return null;
  }
  return Object.values(params).includes("") ? null : params;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

/** `#/skills/a/diff?from=1` has the path `/skills/a/diff` and the query `from=1`. */
export function currentRoute() {
  const [path, query = ""] = window.location.hash.slice(1).split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function navigate(path) {
  window.location.hash = path;
}

/** Changes the query without reloading the page or adding a history entry. */
export function replaceQuery(query) {
  const text = new URLSearchParams(query).toString();
  window.history.replaceState(null, "", `#${currentRoute().path}${text && `?${text}`}`);
}
