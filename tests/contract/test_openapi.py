"""The OpenAPI document: complete, valid, and equal to the snapshot."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import msgspec
import pytest

from quarterdeck.api.error_docs import refusals
from quarterdeck.api.openapi import openapi_document, serve_document
from quarterdeck.api.routes import OPERATIONS
from quarterdeck.connections.servers.model import CreateMcpServerBody
from quarterdeck.connections.servers.service import check_one_connection
from quarterdeck.core import errors
from quarterdeck.core.call import parse_tags
from quarterdeck.core.errors import ErrorCode, ErrorKind
from quarterdeck.core.operation import ErrorCase, Operation, Payload
from quarterdeck.events.model import DeltaBody, EventBody
from quarterdeck.http.responses import STATUS
from tests.contract.openapi_snapshot import SNAPSHOT, current, resolve

Json = dict[str, Any]

DOCUMENT = openapi_document(OPERATIONS)
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def described(operation: Operation) -> Json:
    found: Json = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


def responses(operation: Operation) -> dict[str, Json]:
    found = described(operation)["responses"].items()
    return {status: resolve(DOCUMENT, response) for status, response in found}


def parameters(operation: Operation) -> dict[str, Json]:
    found = [resolve(DOCUMENT, each) for each in described(operation)["parameters"]]
    return {each["name"]: each for each in found}


def check_example(schema: Json, example: object) -> None:
    # Its import takes seconds, in each process of a parallel run, as does that of openapi_spec_validator.
    from openapi_schema_validator import OAS31Validator, oas31_format_checker

    # With the components, so that references can be resolved.
    whole = schema | {"components": DOCUMENT["components"]}
    OAS31Validator(whole, format_checker=oas31_format_checker).validate(example)


@pytest.mark.parametrize(
    "header",
    [
        "*",
        '"7"',
        'W/"7"',
        '"7", "8"',
        '"7" ,W/"8"',
        '""',
        '"\xe9"',
        "",
        "7",
        '"7',
        '"7" "8"',
        '"7",',
        '"a b"',
        '*, "7"',
    ],
)
def test_the_pattern_of_if_match_is_that_of_the_server(header: str) -> None:
    pattern = DOCUMENT["components"]["parameters"]["IfMatch"]["schema"]["pattern"]
    assert (re.search(pattern, header) is not None) == (parse_tags(header) is not None)


@pytest.mark.parametrize(
    ("fields", "is_valid"),
    [
        ({"url": "https://example.com"}, True),
        ({"url": "https://example.com", "command": None, "credential_id": str(UUID(int=1))}, True),
        ({"command": "git"}, True),
        ({"command": "git", "url": None, "credential_id": None}, True),
        ({}, False),
        ({"url": None, "command": None}, False),
        ({"url": "https://example.com", "command": "git"}, False),
        ({"command": "git", "credential_id": str(UUID(int=1))}, False),
    ],
)
def test_an_mcp_server_has_a_url_or_a_command(fields: Json, is_valid: bool) -> None:
    schema = {"$ref": "#/components/schemas/CreateMcpServerBody"}
    body = {"name": "one"} | fields
    assert (not list(_faults(schema, body))) == is_valid
    given = msgspec.convert(body, CreateMcpServerBody)
    with nullcontext() if is_valid else pytest.raises(errors.ServiceError):
        check_one_connection(given.url, given.command, given.credential_id)


def test_is_valid_openapi_31() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_is_the_snapshot() -> None:
    agreed = SNAPSHOT.read_text("utf-8") if SNAPSHOT.exists() else ""
    if current() != agreed:
        pytest.fail(
            "The API is not the one in tests/contract/openapi.snapshot.json. If the change is meant, run "
            "`make openapi` and commit the file with it; clients will see exactly its diff.",
            pytrace=False,
        )


def test_snapshot_stays_readable() -> None:
    assert len(current().splitlines()) < 300 * len(OPERATIONS)


def test_holds_the_operations_of_the_route_table_and_no_others() -> None:
    found = {
        (path, method.upper(), operation["operationId"])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert found == {(operation.path, operation.method, operation.name) for operation in OPERATIONS}
    assert len(found) == len(OPERATIONS) == len({operation.name for operation in OPERATIONS})


def test_the_codes_are_the_nine() -> None:
    codes = DOCUMENT["components"]["schemas"]["ErrorCode"]["enum"]
    assert sorted(codes) == sorted(code.value for code in ErrorCode)
    assert len(codes) == 9


def test_every_kind_of_error_is_documented() -> None:
    documented = {refusal.fault.kind for operation in OPERATIONS for refusal in refusals(operation)}
    # A wrong method belongs to no operation; the introduction tells of it. What is no request belongs to none either.
    assert set(ErrorKind) - documented == {ErrorKind.WRONG_METHOD, ErrorKind.MALFORMED}
    assert "405" in DOCUMENT["info"]["description"]


@each_operation
def test_has_all_statuses(operation: Operation) -> None:
    expected = {operation.success_status, 426, 429, 500, 503}
    if not operation.public:
        expected |= {400, 401, 404}
    if not operation.hides_forbidden and operation.permission is not None:
        expected.add(403)
    if operation.payload is not Payload.NONE:
        expected |= {400, 408, 413}
    if operation.method != "GET":
        expected.add(409)
    if operation.conditional:
        expected.add(412)
    if operation.etag and operation.method == "GET":
        expected.add(304)
    if operation.download:
        expected |= {206, 304, 416}
    expected |= {STATUS[refusal.fault.kind] for refusal in operation.refusals}
    assert {int(status) for status in described(operation)["responses"]} == expected


@each_operation
def test_error_responses_are_shared(operation: Operation) -> None:
    """A generated client would get a model for each response that is written out in its operation."""
    for status, response in described(operation)["responses"].items():
        if status >= "4":
            assert list(response) == ["$ref"]
            (media,) = resolve(DOCUMENT, response)["content"].values()
            assert list(media["schema"]) == ["$ref"]


@pytest.mark.parametrize("section", ["schemas", "responses", "parameters"])
def test_every_component_is_used(section: str) -> None:
    text = json.dumps(DOCUMENT)
    assert [name for name in DOCUMENT["components"][section] if f'"#/components/{section}/{name}"' not in text] == []


def test_operations_that_share_a_name_share_the_response() -> None:
    first, second = OPERATIONS[0], msgspec.structs.replace(OPERATIONS[0], path="/v1/sessions/{session_id}/other")
    other = ErrorCase("other", errors.conflict("Other."), "Other.", "Other.")
    with pytest.raises(AssertionError, match="ConflictSubmitInput"):
        openapi_document([first, msgspec.structs.replace(second, refusals=(other,))])


@each_operation
def test_each_error_status_names_its_codes_and_only_those(operation: Operation) -> None:
    by_status: dict[str, set[str]] = {}
    for refusal in refusals(operation):
        by_status.setdefault(str(STATUS[refusal.fault.kind]), set()).add(refusal.fault.kind.code)
    for status, response in responses(operation).items():
        if status not in by_status:
            assert int(status) in (operation.success_status, 206, 304)
            continue
        media = response["content"]["application/json"]
        for code in ErrorCode:
            body = {"error": {"code": code.value, "message": ""}}
            allowed = not list(_faults(media["schema"], body))
            assert allowed == (code in by_status[status]), f"{status} {code}"
        for example in media["examples"].values():
            check_example(media["schema"], example["value"])
            assert example["summary"]
            assert example["description"]


def _faults(schema: Json, body: object) -> Iterator[object]:
    from openapi_schema_validator import OAS31Validator

    return iter(OAS31Validator(schema | {"components": DOCUMENT["components"]}).iter_errors(body))


@each_operation
def test_refusals_of_one_status_have_different_names(operation: Operation) -> None:
    named = [(STATUS[refusal.fault.kind], refusal.name) for refusal in refusals(operation)]
    assert len(named) == len(set(named))


@each_operation
def test_headers_of_responses(operation: Operation) -> None:
    found = responses(operation)
    for response in found.values():
        assert resolve(DOCUMENT, response["headers"]["X-Request-Id"])["required"]
    if "401" in found:
        assert found["401"]["headers"]["WWW-Authenticate"]["required"]
    assert found["429"]["headers"]["Retry-After"]["required"]
    assert found["503"]["headers"]["Retry-After"]["required"]
    for name in ("RateLimit", "RateLimit-Policy"):
        silent = {status for status, response in found.items() if name not in response["headers"]}
        unknown = set(found) if operation.public else {"401", "426"}
        assert silent == unknown, "all but callers that nobody knows yet are told"
    replayed = "Idempotency-Replayed" in found[str(operation.success_status)]["headers"]
    assert replayed == operation.idempotent
    has_etag = "ETag" in found[str(operation.success_status)]["headers"]
    assert has_etag == (operation.etag or operation.download is not None)


def test_only_the_conflict_that_is_retried_has_retry_after() -> None:
    retried = {
        operation.name
        for operation in OPERATIONS
        if "Retry-After" in responses(operation).get("409", {"headers": {}})["headers"]
    }
    contended = {
        operation.name
        for operation in OPERATIONS
        if any(refusal.fault.kind is ErrorKind.CONTENDED for refusal in refusals(operation))
    }
    assert retried == contended == {operation.name for operation in OPERATIONS if operation.method != "GET"}


@each_operation
def test_parameters(operation: Operation) -> None:
    found = parameters(operation)
    assert ("Service-Workspace" in found) != operation.public
    if not operation.public:
        assert found["Service-Workspace"]["required"] == operation.workspace_required
    assert {name for name, each in found.items() if each["in"] == "path"} == {
        *operation.path_ids,
        *operation.path_numbers,
    }
    for name in {*operation.path_ids, "Service-Workspace"} & set(found):
        assert found[name]["schema"]["format"] == "uuid"
        pattern = found[name]["schema"]["pattern"]
        assert re.search(pattern, "0192F0C1-2a00-7c3e-9d4b-3f1a5c7e9b01")
        assert not re.search(pattern, "{0192f0c1-2a00-7c3e-9d4b-3f1a5c7e9b01}")
        assert not re.search(pattern, "0192f0c12a007c3e9d4b3f1a5c7e9b01")
    assert ("Idempotency-Key" in found) == operation.idempotent
    if operation.idempotent:
        schema = found["Idempotency-Key"]["schema"]
        assert (schema["type"], schema["minLength"], schema["maxLength"]) == ("string", 1, 255)
        assert all(re.search(schema["pattern"], text) for text in ("a", "7f-9 ~", "é€"))
        assert not any(re.search(schema["pattern"], text) for text in ("\t", "a\x7f", "\x85", "\xa0", "\xad"))
    assert ({"Range", "If-Range", "If-None-Match"} <= set(found)) == (operation.download is not None)
    expected = {"limit", "after", "order"} if operation.paged else set()
    expected |= {"limit", "after"} if operation.by_path else set()
    expected |= {"limit", "after", "Last-Event-ID"} if operation.log else set()
    assert {"limit", "after", "order", "Last-Event-ID"} & set(found) == expected


def test_pages() -> None:
    found = parameters(next(operation for operation in OPERATIONS if operation.paged))
    expected = {"type": "integer", "format": "int64", "minimum": 1, "maximum": 200, "default": 50}
    assert found["limit"]["schema"] == expected
    assert found["order"]["schema"] == {"type": "string", "enum": ["asc", "desc"], "default": "desc"}
    assert not any(found[name]["required"] for name in ("limit", "after", "order"))


def test_a_log_is_read_by_numbers_and_as_a_stream() -> None:
    operation = next(operation for operation in OPERATIONS if operation.log)
    found = parameters(operation)
    expected = {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**63 - 1, "default": 0}
    assert found["after"]["schema"] == expected
    pattern = found["Last-Event-ID"]["schema"]["pattern"]
    for number in (0, 7, 10**18, 9 * 10**18, 9_199_999_999_999_999_999, 2**63 - 2, 2**63 - 1):
        assert re.search(pattern, str(number)), number
    for text in ("", "x", "-1", "1x", " 1", str(2**63), str(2**63 + 1), "9300000000000000000", str(10**19)):
        assert not re.search(pattern, text), text
    content = described(operation)["responses"]["200"]["content"]
    assert list(content) == ["application/json", "text/event-stream"]
    messages = content["text/event-stream"]["example"].strip().split("\n\n")
    shown = [json.loads(message.split("data: ")[1]) for message in messages if "data: " in message]
    msgspec.convert(shown[0], EventBody)
    msgspec.convert(shown[1], DeltaBody)
    streams = {each.name for each in OPERATIONS if "text/event-stream" in json.dumps(described(each)["responses"])}
    assert streams == {operation.name}


@each_operation
def test_security_names_the_permission(operation: Operation) -> None:
    permissions = [each.value for each in operation.permissions]
    expected: list[Json] = [{"api_key": permissions}, {"device": permissions}]
    if operation.session_token:
        expected.append({"session_token": []})
    if operation.personal:
        expected = [{"device": []}]
    if operation.public:
        expected = []
    assert described(operation)["security"] == expected


@each_operation
def test_bodies_have_fitting_examples(operation: Operation) -> None:
    """If this fails for a new operation, add a value of its types to the `examples.py` of its package."""
    success = responses(operation)[str(operation.success_status)]
    if operation.download:
        part = responses(operation)["206"]
        binary = {operation.download: {"schema": {"type": "string", "format": "binary"}}}
        assert success["content"] == part["content"] == binary
        assert part["headers"].keys() - success["headers"].keys() == {"Content-Range"}
    elif operation.formats:
        assert list(success["content"]) == list(operation.formats)
    elif operation.success_type is None:
        assert "content" not in success
    else:
        media = success["content"]["application/json"]
        check_example(media["schema"], media["example"])
    if operation.payload is Payload.NONE:
        assert "requestBody" not in described(operation)
        return
    body = described(operation)["requestBody"]
    assert body["required"]
    binary_type = {Payload.GZIP: "application/gzip", Payload.FILE: "application/octet-stream"}.get(operation.payload)
    if binary_type is not None:
        assert body["content"] == {binary_type: {"schema": {"type": "string", "format": "binary"}}}
        return
    media = body["content"]["application/json"]
    check_example(media["schema"], media["example"])
    msgspec.convert(media["example"], operation.payload)


def objects_of(schema: Any) -> Iterator[Any]:
    """All objects with named fields in a schema, references followed."""
    if isinstance(schema, list):
        for inner in schema:
            yield from objects_of(inner)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            yield from objects_of(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        if "properties" in schema:
            yield schema
        for inner in schema.values():
            yield from objects_of(inner)


@each_operation
def test_bodies_have_no_other_fields(operation: Operation) -> None:
    if isinstance(operation.payload, Payload):
        return
    schema = described(operation)["requestBody"]["content"]["application/json"]["schema"]
    found = list(objects_of(schema))
    assert found
    for one in found:
        assert one["additionalProperties"] is False, one.get("title")


def test_records_may_get_other_fields() -> None:
    """Clients must not depend on the fields of a response being all."""
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("SessionBody", "RunBody", "ApiKeyBody", "SubmitKindBody", "EventBody"):
        assert "additionalProperties" not in schemas[name]


@each_operation
def test_described_query_parameters_are_the_known_ones(operation: Operation) -> None:
    parameters = [resolve(DOCUMENT, one) for one in described(operation)["parameters"]]
    names = [parameter["name"] for parameter in parameters if parameter["in"] == "query"]
    assert sorted(names) == sorted(query.name for query in operation.queries)


@each_operation
def test_tag_has_a_description(operation: Operation) -> None:
    """If this fails for a new resource, add it to `_TAGS` in `api/openapi.py`."""
    descriptions = {tag["name"]: tag.get("description") for tag in DOCUMENT["tags"]}
    assert all(descriptions[tag] for tag in described(operation)["tags"])


async def test_served_document_is_the_document() -> None:
    response = await serve_document(DOCUMENT)({"type": "http"}, None)  # type: ignore[arg-type]
    assert msgspec.json.decode(bytes(response.body)) == DOCUMENT
    assert response.headers["content-type"] == "application/json"
