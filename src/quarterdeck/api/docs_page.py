"""Renders the OpenAPI document as one HTML page without scripts and external files."""

import base64
import hashlib
import re
import shlex
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope

from quarterdeck.api.endpoint import Respond
from quarterdeck.core.settings import ServerSettings
from quarterdeck.http.request import GZIP
from quarterdeck.http.responses import JSON
from quarterdeck.http.schemas import BINARY

Json = dict[str, Any]

# Builds HTML. Text is escaped unless it has the type `Html`, which only this module creates.

_MARKS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")
_VOID = frozenset({"meta", "wbr"})


class Html(str):
    """Markup that needs no escaping."""

    __slots__ = ()


def el(tag: str, /, *children: str, **attributes: str) -> Html:
    """`class_` is the attribute `class`, `data_x` is `data-x`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"' for key, value in attributes.items()
    )
    if tag in _VOID:
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: str) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child, quote=True) for child in children))


def stylesheet(css: str) -> Html:
    """Not escaped: the CSS is our own, and browsers do not decode entities in a style element."""
    assert "</" not in css
    return Html(f"<style>{css}</style>")


def inline(text: str) -> Html:
    """Markdown's `code` and **bold**."""
    parts: list[str] = []
    end = 0
    for found in _MARKS.finditer(text):
        parts.append(text[end : found.start()])
        parts.append(el("code", found[1]) if found[1] else el("strong", found[2]))
        end = found.end()
    return join(*parts, text[end:])


def paragraphs(text: str) -> Html:
    return join(*(el("p", inline(part)) for part in text.strip().split("\n\n")))


# Flattens a JSON schema into table rows. Nested records become dotted names.

# Enough for a page of records with nested records. Limits recursive schemas.
_LEVELS = 4


class Field(Struct, frozen=True):
    name: str
    type: str
    required: bool
    # Meaning, allowed values, limits.
    note: str


def resolve(document: Json, node: Json) -> Json:
    """Follow a `$ref` into this document; other nodes are returned as they are."""
    while "$ref" in node:
        target: Any = document
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


def fields(document: Json, schema: Json) -> list[Field]:
    return list(_field_rows(document, schema, "", _LEVELS))


def type_of(document: Json, schema: Json) -> str:
    schema = resolve(document, schema)
    if "anyOf" in schema:
        return " or ".join(type_of(document, option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {type_of(document, schema['items'])}"
    return " · ".join(part for part in (schema.get("type", "any JSON"), schema.get("format")) if part)


def note_of(document: Json, schema: Json) -> str:
    options = [schema, *schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    resolved = [resolve(document, option) for option in options]
    texts = [schema["description"]] if "description" in schema else []
    for option in resolved:
        texts += _limits(option)
    if schema.get("default") is not None:
        texts.append(f"Default `{schema['default']}`.")
    return " ".join(texts)


def _field_rows(document: Json, schema: Json, prefix: str, levels: int) -> Iterator[Field]:
    schema = resolve(document, schema)
    required = schema.get("required", ())
    for name, node in schema.get("properties", {}).items():
        yield Field(prefix + name, type_of(document, node), name in required, note_of(document, node))
        inner = resolve(document, node)
        below = f"{prefix}{name}."
        if inner.get("type") == "array":
            inner, below = resolve(document, inner["items"]), f"{prefix}{name}[]."
        if levels > 1:
            yield from _field_rows(document, inner, below, levels - 1)


def _limits(schema: Json) -> Iterator[str]:
    if "enum" in schema:
        values = [f"`{value}`" for value in schema["enum"]]
        yield f"Always {values[0]}." if len(values) == 1 else f"One of {', '.join(values)}."
    if span := _span(schema, "minimum", "maximum"):
        yield f"{span}."
    if span := _span(schema, "minLength", "maxLength"):
        yield f"{span} characters."
    if span := _span(schema, "minItems", "maxItems"):
        yield f"{span} entries."
    # A format already implies the pattern.
    if "pattern" in schema and "format" not in schema:
        yield f"Matches `{schema['pattern']}`."


def _span(schema: Json, least: str, most: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if high is None:
        return f"At least {low}"
    return f"At most {high}" if low is None else f"{low} to {high}"


# A curl command for each operation. The reader sets $QD_URL, $QD_KEY, $QD_WORKSPACE and the ids of the path.


def curl_command(document: Json, method: str, path: str, operation: Json) -> str:
    address = re.sub(r"{(\w+)}", lambda found: f"${found[1].upper()}", path) + _query(document, operation)
    content = operation.get("requestBody", {}).get("content", {})
    verb = "" if method == "get" or content else f" -X {method.upper()}"
    lines = [f'curl{verb} "$QD_URL{address}"', '-H "Authorization: Bearer $QD_KEY"']
    for parameter in (resolve(document, each) for each in operation["parameters"]):
        if parameter["name"] == "Service-Workspace" and parameter["required"]:
            lines.append('-H "Service-Workspace: $QD_WORKSPACE"')
        if parameter["name"] == "Idempotency-Key":
            lines.append('-H "Idempotency-Key: $(uuidgen)"')
    packing = ""
    if JSON in content:
        body = msgspec.json.format(msgspec.json.encode(content[JSON].get("example", {})), indent=2).decode()
        lines += [f'-H "Content-Type: {JSON}"', f"-d {shlex.quote(body)}"]
    elif GZIP in content:
        packing = "tar -C my-skill -czf - . |\n"
        lines += [f'-H "Content-Type: {GZIP}"', "--data-binary @-"]
    success = next(iter(operation["responses"].values()))
    if any(media["schema"] == BINARY for media in success.get("content", {}).values()):
        # Save under the file name from the server.
        lines.append("-OJ")
    return packing + " \\\n  ".join(lines)


def _query(document: Json, operation: Json) -> str:
    """The required query parameters with their example values."""
    parameters = (resolve(document, each) for each in operation["parameters"])
    given = {each["name"]: each["example"] for each in parameters if each["in"] == "query" and each["required"]}
    return f"?{urlencode(given)}" if given else ""


class _Described(msgspec.Struct, frozen=True):
    """An operation with its method and path."""

    method: str
    path: str
    operation: Json

    @property
    def name(self) -> str:
        return str(self.operation["operationId"])


def serve_docs(document: Json) -> Respond:
    css = _css()
    page = docs_html(document, css)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    headers = {
        "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }

    async def respond(_: Scope, __: Receive) -> Response:
        return HTMLResponse(page, headers=headers)

    return respond


def docs_html(document: Json, css: str | None = None) -> str:
    groups = _groups(document)
    title = f"{document['info']['title']} API"
    menu = _menu(groups)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        stylesheet(_css() if css is None else css),
    )
    body = el(
        "body",
        el("nav", el("a", title, href="#top", class_="brand"), menu, class_="side", aria_label="Operations"),
        el(
            "main",
            _intro(document, title),
            el("details", el("summary", "All operations"), menu, class_="jump"),
            *(_group(document, tag, members) for tag, members in groups),
            id="top",
        ),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _css() -> str:
    return files("quarterdeck.api").joinpath("docs_page.css").read_text("utf-8")


def _groups(document: Json) -> list[tuple[Json, list[_Described]]]:
    every = [
        _Described(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return [(tag, [each for each in every if tag["name"] in each.operation["tags"]]) for tag in document["tags"]]


def _menu(groups: list[tuple[Json, list[_Described]]]) -> Html:
    def entry(each: _Described) -> Html:
        return el("li", el("a", _method(each), " ", each.operation["summary"], href=f"#{each.name}"))

    return join(*(join(el("h2", tag["name"]), el("ul", *(entry(each) for each in members))) for tag, members in groups))


def _intro(document: Json, title: str) -> Html:
    usual = ServerSettings()
    setup = f"export QD_URL=http://{usual.host}:{usual.port}\nexport QD_KEY=qd_…\nexport QD_WORKSPACE=…"
    return el(
        "header",
        el("h1", title),
        el("p", "Version ", document["info"]["version"], " · ", el("a", "openapi.json", href="openapi.json")),
        el("div", paragraphs(document["info"]["description"]), class_="prose"),
        el("p", "The commands below can be pasted once these are set: address, API key, id of its workspace."),
        el("pre", setup),
    )


def _group(document: Json, tag: Json, members: list[_Described]) -> Html:
    about = [el("p", inline(tag["description"]))] if "description" in tag else []
    articles = (_operation(document, each) for each in members)
    return el("section", el("div", el("h2", tag["name"]), *about, class_="group"), *articles)


def _operation(document: Json, each: _Described) -> Html:
    operation = each.operation
    heading = el("h3", el("a", operation["summary"], href=f"#{each.name}"))
    about = [el("p", inline(operation["description"]))] if "description" in operation else []
    (status, success), *others = [each for each in operation["responses"].items() if each[0] < "4"]
    # The example belongs to the first media type.
    answer: Json = next(iter(success.get("content", {}).values()), {})
    text = el(
        "div",
        _parameters(document, operation),
        _request(document, operation),
        _answer(document, status, success, answer.get("schema", {})),
        *(_status(name, other) for name, other in others),
    )
    code = el(
        "div",
        el("h4", "Request"),
        el("pre", curl_command(document, each.method, each.path, operation), class_="command"),
        *([el("h4", f"Answer {status}"), el("pre", _pretty(answer["example"]))] if "example" in answer else []),
        class_="code",
    )
    address = el("p", _method(each), " ", el("code", each.path), class_="address")
    columns = el("div", text, code, class_="columns")
    return el(
        "article", heading, address, *about, _needs(operation), columns, _errors(document, operation), id=each.name
    )


def _method(each: _Described) -> Html:
    return el("b", each.method.upper(), class_=f"method {each.method}")


def _needs(operation: Json) -> Html:
    permissions = [name for scheme in operation["security"] for name in scheme.get("api_key", ())]
    if not permissions:
        return el("p", "Any key or session token will do.", class_="needs")
    token = any("session_token" in scheme for scheme in operation["security"])
    also = ", or a token of this session" if token else ""
    first, *more = permissions
    others = [part for name in more for part in (" and ", el("code", name))]
    return el("p", "Needs a key with ", el("code", first), *others, f"{also}.", class_="needs")


def _parameters(document: Json, operation: Json) -> Html:
    rows = [
        Field(
            parameter["name"],
            f"{parameter['in']} · {type_of(document, parameter['schema'])}",
            parameter["required"],
            f"{parameter['description']} {note_of(document, parameter['schema'])}".strip(),
        )
        for parameter in (resolve(document, each) for each in operation["parameters"])
    ]
    return _table("Parameters", rows, mark_required=True) if rows else Html()


def _request(document: Json, operation: Json) -> Html:
    if "requestBody" not in operation:
        return Html()
    media_type, media = next(iter(operation["requestBody"]["content"].items()))
    rows = fields(document, media["schema"])
    if rows:
        return _table(f"Body, {media_type}", rows, mark_required=True)
    return join(el("h4", f"Body, {media_type}"), el("p", "Binary, required."))


def _answer(document: Json, status: str, success: Json, schema: Json) -> Html:
    rows = fields(document, schema)
    headers = [name for name in success["headers"] if name != "X-Request-Id"]
    others = list(success.get("content", {}).items())[1:]
    replay = el("p", "A repeated answer carries ", el("code", "Idempotency-Replayed: true"), ".")
    return join(
        el("h4", "Answer"),
        _status(status, success),
        replay if "Idempotency-Replayed" in headers else "",
        el("details", el("summary", "Fields of the answer"), _rows(rows, mark_required=False)) if rows else "",
        *(_other_answer(name, media) for name, media in others if "example" in media),
    )


def _status(status: str, response: Json) -> Html:
    media_types = [name for name, media in response.get("content", {}).items() if media["schema"] == BINARY]
    binary = [" Binary, ", el("code", " or ".join(media_types)), "."] if media_types else []
    return el("p", el("b", status, class_="status good"), " ", inline(response["description"]), *binary)


def _other_answer(media_type: str, media: Json) -> Html:
    text, example = media["schema"]["description"], media["example"]
    return join(el("h4", f"Answer, {media_type}"), el("p", inline(text)), el("pre", example.strip()))


def _errors(document: Json, operation: Json) -> Html:
    responses = operation["responses"].items()
    errors = {status: resolve(document, response) for status, response in responses if status >= "4"}
    chips = [el("b", status, class_="status") for status in errors]
    entries = [
        el(
            "tr",
            el("td", el("b", status, class_="status"), " ", el("code", example["value"]["error"]["code"])),
            el("td", inline(example["summary"])),
            el("td", inline(example["description"])),
        )
        for status, response in errors.items()
        for media in response["content"].values()
        for example in media["examples"].values()
    ]
    head = el("thead", el("tr", *(el("th", text, scope="col") for text in ("Status and code", "When", "What to do"))))
    summary = el("summary", "Errors ", *(join(chip, " ") for chip in chips))
    return el("details", summary, el("table", head, el("tbody", *entries), class_="errors"))


def _table(title: str, rows: list[Field], *, mark_required: bool) -> Html:
    return join(el("h4", title), _rows(rows, mark_required=mark_required))


def _rows(rows: list[Field], *, mark_required: bool) -> Html:
    """Requests mark required fields; responses mark optional ones."""

    def row(field: Field) -> Html:
        mark: list[str] = []
        if mark_required and field.required:
            mark = [" ", el("span", "required", class_="required")]
        elif not mark_required and not field.required:
            mark = [" ", el("span", "may be absent", class_="optional")]
        # A long dotted name may wrap after a dot.
        parts = field.name.split(".")
        dotted = [join(part, ".", el("wbr")) for part in parts[:-1]]
        name = el("th", el("code", *dotted, parts[-1]), *mark, scope="row")
        return el("tr", name, el("td", el("span", field.type, class_="type"), " ", inline(field.note)))

    return el("table", el("tbody", *(row(field) for field in rows)), class_="fields")


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
