"""Renders the OpenAPI document as one HTML page without scripts and external files."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

import msgspec
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope

from quarterdeck.api.curl import curl_command
from quarterdeck.api.endpoint import Respond
from quarterdeck.api.html import Html, el, inline, join, paragraphs, stylesheet
from quarterdeck.api.schema_fields import Field, fields, note_of, resolve, type_of
from quarterdeck.core.settings import ServerSettings
from quarterdeck.http.schemas import BINARY

Json = dict[str, Any]


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
