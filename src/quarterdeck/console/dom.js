// Creates DOM elements. Strings always become text nodes; nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** `el("a", {href: "#/keys", on: {click}}, "Keys", [more])`. Attributes and children that are null or false are omitted. */
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "value" || name === "checked" || name === "selected") {
      node[name] = value;
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...flatChildren(children));
  return node;
}

/** Flattens nested lists and drops null, undefined and false. */
export function flatChildren(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

export function fill(node, ...children) {
  node.replaceChildren(...flatChildren(children));
  return node;
}

let lastId = 0;
/** An element id that is unique on the page. */
export function uniqueId(name) {
  lastId += 1;
  return `${name}-${lastId}`;
}
