// Elements. Text is text: nothing here reads markup, and the page's policy forbids whatever would.

const SVG = "http://www.w3.org/2000/svg";

/** `el("a", {href: "#/keys", on: {click}}, "Keys", null, [more])`. An attribute that is null or false is left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "value" || name === "checked" || name === "selected") {
      node[name] = value;
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...present(children));
  return node;
}

/** Children as `el` takes them: lists are laid flat, what is null or false is left out. */
export function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

export function fill(node, ...children) {
  node.replaceChildren(...present(children));
  return node;
}

let lastId = 0;
/** For `for`, `aria-labelledby` and the like. */
export function freshId(name) {
  lastId += 1;
  return `${name}-${lastId}`;
}
