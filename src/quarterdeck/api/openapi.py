"""Generates the OpenAPI 3.1 document from the route table and the types that the handlers use."""

import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck.api.endpoint import Respond
from quarterdeck.api.error_docs import LIMIT_HEADERS, ErrorResponses, noun
from quarterdeck.api.openapi_parts import (
    BINARY,
    DESCRIPTION,
    DOWNLOAD_HEADERS,
    EVENT_STREAM_CONTENT,
    NUMBER,
    PARAMETERS,
    PART_HEADERS,
    RESPONSE_HEADERS,
    SECURITY_SCHEMES,
    UUID,
    camel_case,
    reference,
)
from quarterdeck.core.operation import Operation, Payload, QueryParameter
from quarterdeck.http.request import BYTES, GZIP
from quarterdeck.http.responses import JSON, ErrorBody, json_response

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/{name}"
_BINARY_BODIES: dict[Any, str] = {Payload.GZIP: GZIP, Payload.FILE: BYTES}
# By the first segment of the path after /v1.
_TAGS = {
    "sessions": ("Sessions", "Conversations with an agent."),
    "runs": ("Runs", "An agent working on inputs of a session. A session has at most one active run."),
    "actions": ("Actions", "What runs wait for: approvals, results of tools that the caller carries out, and limits."),
    "models": ("Models", "The language models that sessions can use."),
    "whoami": ("Caller", "The credential of the request."),
    "api-keys": ("API keys", "Credentials of a workspace. A secret is shown only once, when the key is created."),
    "workspace": ("Workspace", "The workspace of the key."),
    "members": ("Members", "The people of a workspace and their roles."),
    "invitations": ("Invitations", "Links that let people into a workspace."),
    "sign-in": ("Signing in", "How people get a credential."),
    "sign-out": ("Signing in", "How people get a credential."),
    "device-codes": ("Signing in", "How people get a credential."),
    "profile": ("Profile", "The person who has signed in."),
    "devices": ("Profile", "The person who has signed in."),
    "activity": ("Activity", "Statistics of a workspace, for charts."),
    "usage": ("Usage", "Tokens and cost of a workspace."),
    "audit-events": ("Audit log", "Who changed what, when and from where."),
    "skills": ("Skills", "Bundles of files for agents, in immutable numbered versions."),
    "agents": ("Agents", "Configurations for sessions, in immutable numbered versions."),
    "mcp-servers": ("MCP servers", "Servers of the Model Context Protocol, whose tools agents can use."),
    "files": ("Files", "Uploaded files, which inputs can have as attachments."),
    "credentials": ("Credentials", "Secrets for the servers that agents use. No response has a secret."),
    "trusted-jobs": ("Trusted jobs", "Jobs of CI systems that may push versions of a skill."),
    "webhooks": ("Webhooks", "Notifications to other systems about ended runs and about actions."),
}


def openapi_document(operations: Iterable[Operation]) -> Json:
    operations = tuple(operations)
    types: list[Any] = [ErrorBody]
    types += [operation.success_type for operation in operations if operation.success_type is not None]
    payloads = [operation.payload for operation in operations if not isinstance(operation.payload, Payload)]
    types += payloads
    # Bodies whose fields exclude each other, with a type for each form.
    one_of = {type_: type_.one_of for type_ in types if hasattr(type_, "one_of")}
    types += [option for options in one_of.values() for option in options]
    refs, schemas = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    ref_of = dict(zip(types, refs, strict=True))
    for type_, options in one_of.items():
        schemas[type_.__name__]["oneOf"] = [ref_of[option] for option in options]
    for name in _reachable([ref_of[payload] for payload in payloads], schemas):
        if "properties" in schemas[name]:
            schemas[name]["additionalProperties"] = False
    errors = ErrorResponses()
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, ref_of, errors)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quarterdeck", "version": version("quarterdeck"), "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": _tags(operations),
        "paths": paths,
        "components": {
            "schemas": {name: _normalized(schemas[name]) for name in sorted(schemas)} | errors.schemas,
            "responses": errors.responses,
            "parameters": PARAMETERS | _path_parameters(operations),
            "headers": RESPONSE_HEADERS,
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _reachable(schema: Any, schemas: Json) -> set[str]:
    """The names of all schemas that this one refers to, also through others."""
    found: set[str] = set()
    left = [schema]
    while left:
        match left.pop():
            case {"$ref": str(reference)}:
                name = reference.removeprefix(_SCHEMAS.format(name=""))
                if name not in found:
                    found.add(name)
                    left.append(schemas[name])
            case dict(inner):
                left += inner.values()
            case list(items):
                left += items
    return found


def serve_document(document: Json) -> Respond:
    body = msgspec.json.encode(document)

    async def respond(_: Scope, __: Receive) -> Response:
        return json_response(body, 200)

    return respond


def _operation(operation: Operation, ref_of: dict[Any, Json], errors: ErrorResponses) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.summary}
    described["description"] = f"{operation.description}\n\n{_needs(operation)}".strip()
    described["tags"] = [_tag(operation)[0]]
    # In OpenAPI 3.1 the list may name required roles for any type of scheme.
    described["security"] = _security(operation)
    described["parameters"] = _parameters(operation)
    if operation.payload in _BINARY_BODIES:
        content: Json = {_BINARY_BODIES[operation.payload]: {"schema": BINARY}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.payload is not Payload.NONE:
        content = {JSON: _media(operation, ref_of[operation.payload], operation.payload)}
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = {
        str(operation.success_status): _success(operation, ref_of.get(operation.success_type)),
        **_part(operation),
        **_not_modified(operation),
        **errors.of(operation),
    }
    return described


def _security(operation: Operation) -> list[Json]:
    if operation.public:
        return []
    if operation.personal:
        return [{"device": []}]
    permissions = list(map(str, operation.permissions))
    tokens: list[Json] = [{"session_token": []}] if operation.session_token else []
    return [{"api_key": permissions}, {"device": permissions}, *tokens]


def _needs(operation: Operation) -> str:
    """Pages for people do not show the permissions in `security`."""
    if operation.public:
        return "Needs no credential."
    if operation.personal:
        return "Only for a person who has signed in: keys and session tokens get 404."
    if not operation.permissions:
        return "Any credential will do."
    permissions = " and ".join(f"`{each}`" for each in operation.permissions)
    return f"Needs a key with {permissions}{', or a token of the session' if operation.session_token else ''}."


def _path_parameters(operations: Iterable[Operation]) -> Json:
    found: Json = {}
    for operation in operations:
        for name in operation.path_ids:
            found[camel_case(name)] = _path_parameter(name, f"ID of the {noun(name)}.", UUID)
        for name in operation.path_numbers:
            found[camel_case(name)] = _path_parameter(name, f"Number of the {name}.", NUMBER)
    return found


def _path_parameter(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _parameters(operation: Operation) -> list[Json]:
    path = [camel_case(name) for name in (*operation.path_ids, *operation.path_numbers)]
    shared = [] if operation.public else ["RequiredWorkspace" if operation.workspace_required else "Workspace"]
    shared += ["IdempotencyKey"] if operation.idempotent else []
    shared += ["IfMatch"] if operation.conditional else []
    shared += ["IfNoneMatch"] if _can_be_cached(operation) else []
    shared += ["Range", "IfRange"] if operation.download else []
    shared += ["LastEventId"] if operation.log else []
    return [
        *(reference("parameters", name) for name in path),
        *(_query(query) for query in operation.queries),
        *(reference("parameters", name) for name in shared),
    ]


def _query(query: QueryParameter) -> Json:
    described: Json = {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "description": query.description,
        "schema": UUID if query.schema.get("format") == "uuid" else query.schema,
    }
    return described if query.example is None else described | {"example": query.example}


def _can_be_cached(operation: Operation) -> bool:
    """Whether the response has an ETag, so that the caller may already have it."""
    return operation.download is not None or (operation.etag and operation.method == "GET")


def example_of(operation: Operation, type_: Any) -> Struct | None:
    """From `EXAMPLES` in the modules with the types of the operation."""
    types = [each for each in (operation.payload, operation.success_type) if each is not None]
    found = (example for each in types for example in getattr(sys.modules[each.__module__], "EXAMPLES", ()))
    return next((example for example in found if type(example) is type_), None)


def _media(operation: Operation, schema: Json, type_: Any) -> Json:
    example = example_of(operation, type_)
    return {"schema": schema} if example is None else {"schema": schema, "example": msgspec.to_builtins(example)}


def _success(operation: Operation, schema: Json | None) -> Json:
    if operation.download:
        return _content(operation.download, operation.success, DOWNLOAD_HEADERS)
    if operation.formats:
        disposition = {"Content-Disposition": DOWNLOAD_HEADERS["Content-Disposition"]}
        exported = _content(operation.formats[0], operation.success, disposition)
        return exported | {"content": {media_type: {"schema": BINARY} for media_type in operation.formats}}
    headers = ["X-Request-Id", *(() if operation.public else LIMIT_HEADERS)]
    headers += ["Idempotency-Replayed"] if operation.idempotent else []
    headers += ["ETag"] if operation.etag else []
    described: Json = {
        "description": operation.success,
        "headers": {name: reference("headers", name) for name in headers},
    }
    if schema is not None:
        content = {JSON: _media(operation, schema, operation.success_type)}
        described["content"] = content | (EVENT_STREAM_CONTENT if operation.log else {})
    return described


def _content(media_type: str, description: str, headers: Json) -> Json:
    return {
        "description": description,
        "headers": {name: reference("headers", name) for name in ("X-Request-Id", *LIMIT_HEADERS)} | headers,
        "content": {media_type: {"schema": BINARY}},
    }


def _part(operation: Operation) -> Json:
    if not operation.download:
        return {}
    return {"206": _content(operation.download, "The requested bytes.", DOWNLOAD_HEADERS | PART_HEADERS)}


def _not_modified(operation: Operation) -> Json:
    if not _can_be_cached(operation):
        return {}
    etag = DOWNLOAD_HEADERS["ETag"] if operation.download else reference("headers", "ETag")
    headers = {name: reference("headers", name) for name in ("X-Request-Id", *LIMIT_HEADERS)} | {"ETag": etag}
    return {"304": {"description": "Not modified: If-None-Match matches.", "headers": headers}}


def _tag(operation: Operation) -> tuple[str, str]:
    resource = operation.path.split("/")[2]
    return _TAGS.get(resource, (resource.replace("-", " ").capitalize(), ""))


def _tags(operations: tuple[Operation, ...]) -> list[Json]:
    # In the order of the route table, without duplicates.
    tags = dict(_tag(operation) for operation in operations)
    return [{"name": name, "description": text} if text else {"name": name} for name, text in tags.items()]


def _normalized(schema: Any) -> Any:
    """Add the type that msgspec omits for enums, and remove empty `required` lists. Objects with any fields say so:
    openapi-typescript takes those without `properties` for empty ones."""
    if isinstance(schema, list):
        return [_normalized(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    normalized = {key: _normalized(value) for key, value in schema.items() if not (key == "required" and value == [])}
    values = normalized.get("enum")
    if isinstance(values, list) and "type" not in normalized and all(isinstance(value, str) for value in values):
        normalized["type"] = "string"
    if normalized.get("type") == "object" and not {"properties", "additionalProperties"} & normalized.keys():
        normalized["additionalProperties"] = True
    return normalized
