// Names of objects that a response contains only by id.

import { get } from "./api.js";

/** Returns `(id, onName)`, which loads each object once. Without its name, for example if it was deleted, `onName` is not called. */
export function objectNames(path, name, signal) {
  const loaded = new Map();
  return (id, onName) => {
    if (!loaded.has(id)) loaded.set(id, get(path(id), {}, signal).then(name));
    loaded.get(id).then(onName, () => {});
  };
}
