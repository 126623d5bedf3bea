"""Settings of what agents use: models, the sandbox with its workspaces, MCP servers. Read by core/settings.py."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from quarterdeck.core.setting_types import AddressExceptions, Bytes, Count, Endpoints, Folders, ModelNames, Seconds


class WorkspaceSettings(Struct, frozen=True):
    # Of sessions that say nothing. None: `sandbox` if the server has one, otherwise `none`.
    default: Literal["sandbox", "none"] | None = None
    # What one session's workspace may hold. A call that goes beyond is undone.
    bytes: Bytes = 1024 * 1024 * 1024
    files: Count = 20_000
    file_bytes: Bytes = 256 * 1024 * 1024
    # Of the disk with the folders of sessions. Commands are stopped if less is free.
    free_bytes: Annotated[int, Meta(ge=0)] = 1024 * 1024 * 1024
    # Where workers keep the folders of sessions. None: `workspaces` under the data directory or, if the user of the
    # sandbox cannot enter it, a folder under /var/tmp. Nothing in it is needed after a restart.
    folder: Annotated[str, Meta(min_length=1)] | None = None
    # Folders that a worker keeps after the last run in them, so that the next run starts sooner.
    kept_folders: Annotated[int, Meta(ge=0)] = 50
    # How often a worker looks for copies on its disk of what was deleted.
    sweep_seconds: Seconds = 20.0


class SandboxSettings(Struct, frozen=True):
    # auto: bubblewrap where it works, otherwise none.
    kind: Literal["auto", "bubblewrap", "container", "none"] = "auto"
    # The rule for tools in the sandbox that the policy of a session does not name.
    rule: Literal["allow", "ask"] = "allow"
    network: bool = False
    processes: Count = 256
    memory_bytes: Annotated[int, Meta(ge=16 * 1024 * 1024)] = 1024 * 1024 * 1024
    # Of one command. Also the longest time that a call can ask for.
    command_seconds: Seconds = 120.0
    # Output that the model is shown, from its start and its end.
    output_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    # Size of /tmp, which is in memory and is emptied after each command.
    temporary_bytes: Bytes = 256 * 1024 * 1024
    # Folders of the host, besides its system folders, that commands can read.
    readable: Folders | None = None
    # If the worker is root: the first user of commands, and how many there are. Each workspace has one of its own while
    # it has commands, servers or folders on the worker.
    user_id: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 64_000
    users: Annotated[int, Meta(ge=1, le=2**20)] = 1000
    container_command: Annotated[str, Meta(min_length=1)] = "docker"
    container_image: str | None = None


class ModelSettings(Struct, frozen=True):
    # Used by sessions that name no model.
    default: str = "demo"
    # Suggested to callers beside the default. Other models of a configured provider can be used too.
    names: ModelNames | None = None
    # Never part of an error message. Keys are checked where they are used.
    openai_api_key: str | None = None
    openai_base_url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    # How `openai:` is asked. None: by `responses`, or with a base URL by `chat`.
    openai_api: Literal["responses", "chat"] | None = None
    # Whether OpenAI keeps what it is sent and what it answers.
    openai_store: bool = False
    anthropic_api_key: str | None = None
    anthropic_base_url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    # OpenAI-compatible servers, by the first part of the names of their models. The key of `gpu` is in GPU_API_KEY.
    endpoints: Endpoints | None = None
    request_retries: Annotated[int, Meta(ge=0)] = 4
    retry_base_seconds: Seconds = 0.5
    retry_max_seconds: Seconds = 30.0
    # Reasoning models may be silent for a minute before their first token. The client libraries time out after 600 s.
    stall_seconds: Annotated[float, Meta(gt=0, le=600)] = 120.0
    # Estimated tokens of a request. Context windows start at 128,000; the rest is for the answer and the estimation
    # error.
    context_tokens: Annotated[int, Meta(ge=1000)] = 100_000
    # What happens to the older part of a conversation that is longer than that.
    compaction: Literal["summarise", "trim"] = "summarise"
    # Of one summary, estimated. At most a quarter of the context is used.
    summary_tokens: Annotated[int, Meta(ge=100)] = 4_000
    # Further answers in a row, after one that does not match the output schema of the session.
    output_retries: Annotated[int, Meta(ge=0, le=20)] = 2
    tool_result_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    # Attachments in one request. Base64 makes them a third larger, and providers refuse requests of more than 32 MB.
    attachment_bytes: Bytes = 16 * 1024 * 1024
    # Of one text. The model can read the rest in the workspace.
    attachment_text_bytes: Bytes = 64 * 1024
    demo_pause_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.05
    # Of all steps of a run together. Whoever can send inputs could hold a place of a worker for so long.
    demo_slow_seconds: Annotated[float, Meta(ge=0, le=3600)] = 120.0


class McpSettings(Struct, frozen=True):
    # Addresses that are not public, to which the URLs of servers may lead nevertheless.
    allowed_addresses: AddressExceptions | None = None
    # A YAML file with the commands of stdio servers. None: workspaces can name no command.
    commands_file: Annotated[str, Meta(min_length=1)] | None = None
    per_workspace: Count = 50
    # Concurrent checks of one workspace in one API process. Further ones wait.
    checks_per_workspace: Count = 4
    # Of one server. Further tools are not offered.
    tools: Count = 200
    # Of the names, descriptions and schemas of the tools of one server.
    tools_bytes: Bytes = 256 * 1024
    # Open connections and processes of one worker or API process.
    connections: Count = 200
    # Part of the connections that one workspace can hold.
    workspace_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    # After its last use. Until then the next run of the session uses it again.
    idle_seconds: Seconds = 300.0
    # For connecting and listing the tools.
    connect_seconds: Annotated[float, Meta(gt=0, le=120)] = 30.0
    call_seconds: Seconds = 120.0
    # Of one message of a server. A connection with a longer one is closed.
    message_bytes: Annotated[int, Meta(ge=64 * 1024)] = 4 * 1024 * 1024
    # Of one image in a result. Larger ones are left out.
    image_bytes: Bytes = 2 * 1024 * 1024
    # The longest time that a tool of our own endpoint /mcp waits for a run.
    wait_seconds: Annotated[float, Meta(gt=0, le=3600)] = 300.0

    @property
    def connections_per_workspace(self) -> int:
        return max(1, int(self.connections * self.workspace_share))
