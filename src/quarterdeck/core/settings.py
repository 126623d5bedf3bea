"""All settings, read from the environment. All invalid values are reported together.

The field `x` of the section `blob` is read from QUARTERDECK_BLOB_X. Names end in their unit.
docs/run/configuration.md describes each setting; a test compares the two.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from quarterdeck.core.retention import KeepDays, ReceiptDays, RetentionDays
from quarterdeck.core.setting_types import (
    AddressExceptions,
    Burst,
    Bytes,
    Count,
    Endpoints,
    FolderList,
    HostNames,
    ModelLimits,
    ModelNames,
    Networks,
    Origins,
    PerMinute,
    Port,
    Seconds,
)

# Settings of what agents use: models, the sandbox with the files of sessions, MCP servers.


class SandboxSettings(Struct, frozen=True):
    # auto: bubblewrap where it works, otherwise none.
    kind: Literal["auto", "bubblewrap", "container", "none"] = "auto"
    # Whether sessions and versions of agents that do not say so have a sandbox. None: if the server has one.
    default: bool | None = None
    # The rule for tools in the sandbox that the policy of a session does not name.
    rule: Literal["allow", "ask"] = "allow"
    network: bool = False
    processes: Count = 256
    memory_bytes: Annotated[int, Meta(ge=16 * 1024 * 1024)] = 1024 * 1024 * 1024
    # Timeout of one command. Also the longest time that a call can ask for.
    command_seconds: Seconds = 120.0
    # Output that the model is shown, from its start and its end.
    output_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    # Size of /tmp, which is in memory and is emptied after each command.
    temporary_bytes: Bytes = 256 * 1024 * 1024
    # Folders of the host, besides its system folders, that commands can read.
    readable: FolderList | None = None
    # If the worker is root: the first user of commands, and how many there are. Each workspace has one of its own while
    # it has commands, servers or folders on the worker.
    user_id: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 64_000
    users: Annotated[int, Meta(ge=1, le=2**20)] = 1000
    container_command: Annotated[str, Meta(min_length=1)] = "docker"
    container_image: str | None = None
    # Limits for the files of one session. A call that exceeds them is undone.
    all_files_bytes: Bytes = 1024 * 1024 * 1024
    files: Count = 20_000
    file_bytes: Bytes = 256 * 1024 * 1024
    # Space on the disk with the folders of sessions. Commands are stopped if less is free.
    free_bytes: Annotated[int, Meta(ge=0)] = 1024 * 1024 * 1024
    # Where workers keep the folders of sessions. None: `sandboxes` under the data directory or, if the user of the
    # sandbox cannot enter it, a folder under /var/tmp. Nothing in it is needed after a restart.
    folder: Annotated[str, Meta(min_length=1)] | None = None
    # Folders that a worker keeps after the last run in them, so that the next run starts sooner.
    kept_folders: Annotated[int, Meta(ge=0)] = 50
    # How often a worker looks for copies on its disk of what was deleted.
    sweep_seconds: Seconds = 20.0


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
    # OpenAI shows reasoning as a summary only, and for some models only to verified organisations. None: not asked for.
    openai_reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    anthropic_api_key: str | None = None
    anthropic_base_url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    # OpenAI-compatible servers, by the first part of the names of their models. The key of `gpu` is in GPU_API_KEY.
    endpoints: Endpoints | None = None
    # Whether providers keep the beginning of a conversation, which every step sends again. `long`: for an hour, where
    # they offer it. Storing it so costs more, reading it does not.
    cache: Literal["off", "standard", "long"] = "standard"
    # Requests of runs with the priority `batch` that come within this time travel together.
    batch_collect_seconds: Seconds = 10.0
    # How often a worker asks the provider whether a batch has ended.
    batch_poll_seconds: Seconds = 60.0
    # Then the request is asked in the ordinary way. Providers give a batch 24 hours.
    batch_max_seconds: Seconds = 25 * 3600.0
    request_retries: Annotated[int, Meta(ge=0)] = 4
    retry_base_seconds: Seconds = 0.5
    retry_max_seconds: Seconds = 30.0
    # How long runs with fallback models leave a model alone that failed (error of the server, timeout, no connection).
    cool_down_seconds: Seconds = 30.0
    # By provider or model, for all workers together. Runs beyond them wait.
    limits: ModelLimits | None = None
    # Reasoning models may be silent for a minute before their first token. The client libraries time out after 600 s.
    stall_seconds: Annotated[float, Meta(gt=0, le=600)] = 120.0
    # Estimated tokens of a request. Context windows start at 128,000; the rest is for the answer and the estimation
    # error.
    context_tokens: Annotated[int, Meta(ge=1000)] = 100_000
    # How the older part of a longer conversation is left out.
    compaction: Literal["summarise", "trim"] = "summarise"
    # Estimated length of one summary. At most a quarter of the context is used.
    summary_tokens: Annotated[int, Meta(ge=100)] = 4_000
    # Further answers in a row, after one that does not match the output schema of the session.
    output_retries: Annotated[int, Meta(ge=0, le=20)] = 2
    tool_result_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    # Attachments in one request. Base64 makes them a third larger, and providers refuse requests of more than 32 MB.
    attachment_bytes: Bytes = 16 * 1024 * 1024
    # How much of one text is sent. The model can read the rest in the session's folder.
    attachment_text_bytes: Bytes = 64 * 1024
    demo_pause_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.05
    # Total of all steps of a run. Whoever can send inputs can keep a worker busy for so long.
    demo_slow_seconds: Annotated[float, Meta(ge=0, le=3600)] = 120.0


class McpSettings(Struct, frozen=True):
    # Addresses that are not public, to which the URLs of servers may lead nevertheless.
    allowed_addresses: AddressExceptions | None = None
    # A YAML file with the commands of stdio servers. None: workspaces can name no command.
    commands_file: Annotated[str, Meta(min_length=1)] | None = None
    per_workspace: Count = 50
    # Concurrent checks of one workspace in one API process. Further ones wait.
    checks_per_workspace: Count = 4
    # Tools of one server. Further ones are not offered.
    tools: Count = 200
    # Names, descriptions and schemas of the tools of one server together.
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
    # Largest message of a server. A connection with a longer one is closed.
    message_bytes: Annotated[int, Meta(ge=64 * 1024)] = 4 * 1024 * 1024
    # Largest image in a result. Larger ones are left out.
    image_bytes: Bytes = 2 * 1024 * 1024
    # The longest time that a tool of our own endpoint /mcp waits for a run.
    wait_seconds: Annotated[float, Meta(gt=0, le=3600)] = 300.0

    @property
    def connections_per_workspace(self) -> int:
        return max(1, int(self.connections * self.workspace_share))


PREFIX = "QUARTERDECK"

_TEN_YEARS_SECONDS = 10 * 366 * 24 * 3600


class SettingsError(Exception):
    """The message is one line that names all invalid settings."""


class ServerSettings(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: Port = 8700
    # None: health checks are answered on `port` only.
    health_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    processes: Count = 1
    data_dir: Annotated[str, Meta(min_length=1)] = "data"
    shutdown_seconds: Seconds = 10.0


class DatabaseSettings(Struct, frozen=True):
    # None: the embedded PostgreSQL under the data directory.
    url: str | None = None
    # PostgreSQL itself, if `url` is that of a pooler in transaction mode. None: `url` is PostgreSQL itself.
    direct_url: str | None = None
    # The login that migrates. None: the login of `direct_url` or `url`.
    owner_url: str | None = None
    # The role of API and workers. PostgreSQL reserves `none`, `public` and pg_….
    role: Annotated[str, Meta(pattern=r"^(?!(none|public)$|pg_)[a-z_][a-z0-9_]{0,62}$")] = "quarterdeck_app"
    pool_connections: Count = 8
    # The part of these that the requests of one workspace can use at a time.
    workspace_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    submit_connections: Count = 4
    # Callers must learn within five seconds that the database is down. The wait for a connection is part of that.
    pool_wait_seconds: Seconds = 3.0
    statement_seconds: Seconds = 4.0
    # Longer than a healthy transaction holds a session's lock, shorter than the timeouts of clients.
    lock_wait_seconds: Seconds = 2.0
    # How long one attempt waits with a connection in hand. Longer than most transactions hold a lock: those who wait
    # with a connection get the lock in their order, those who pause do not.
    lock_attempt_seconds: Seconds = 0.1

    @property
    def has_pooler(self) -> bool:
        return self.direct_url is not None

    @property
    def session_url(self) -> str | None:
        """PostgreSQL itself, for what needs a session: notifications, migrations, commands."""
        return self.direct_url or self.url


class HttpSettings(Struct, frozen=True):
    # Also the longest that a connection is kept on which nothing is asked.
    header_seconds: Seconds = 30.0
    json_body_bytes: Bytes = 1024 * 1024
    body_seconds: Seconds = 60.0
    body_stall_seconds: Seconds = 10.0
    # Lowest rate of a body, on average over a window. 0: no limit.
    body_bytes_per_second: Annotated[int, Meta(ge=0)] = 1024
    body_rate_seconds: Seconds = 10.0
    drain_seconds: Seconds = 10.0
    drain_stall_seconds: Seconds = 1.0
    connections: Count = 4096
    # Applies to Quarterdeck's own clients only.
    min_client_version: Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,3}$")] = "0.0.0"
    cors_origins: Origins | None = None
    # Names by which the service is reached. Only /mcp checks them.
    public_hosts: HostNames | None = None
    trusted_proxies: Networks | None = None


class LimitSettings(Struct, frozen=True):
    # Requests. 0: no limit. The defaults only stop loops and attacks: decision 0047.
    credential_per_minute: PerMinute = 30_000
    credential_burst: Burst = 5_000
    workspace_per_minute: PerMinute = 60_000
    workspace_burst: Burst = 10_000
    # None: each process enforces its share of the limits. Never part of an error message.
    redis_url: str | None = None
    # Timeout of one call. A request may also wait for the call before its own, and may hold a database connection
    # meanwhile. After a timeout nothing is limited until Redis answers again.
    redis_wait_seconds: Seconds = 0.25


class SubmitSettings(Struct, frozen=True):
    batch_inputs: Count = 64
    # Bytes of text. A batch ends at the first. At the second, inputs are answered 503 until others have been stored; at
    # the third, the inputs of one workspace.
    batch_bytes: Bytes = 1024 * 1024
    waiting_bytes: Bytes = 64 * 1024 * 1024
    workspace_waiting_bytes: Bytes = 16 * 1024 * 1024
    # Inputs that one run has not consumed yet, and their text. Further ones are answered 429. An input always fits if
    # no other one waits.
    run_waiting_inputs: Count = 1_000
    run_waiting_bytes: Bytes = 8 * 1024 * 1024
    # Runs of one session that wait for the end of its active run. Further ones are answered 429.
    session_pending_runs: Count = 20


class ForkSettings(Struct, frozen=True):
    # A fork copies a log in one transaction, which must end within the timeout of statements. Larger ones are answered
    # 409. Bytes as stored: PostgreSQL compresses texts.
    max_events: Count = 10_000
    max_bytes: Bytes = 16 * 1024 * 1024


class KeySettings(Struct, frozen=True):
    # Part of every secret (`qd_<environment>_…`), to tell test keys from live keys.
    environment: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,16}$")] = "live"
    last_used_flush_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0
    # Lifetime of the key that a trusted job gets for its token.
    job_seconds: Annotated[int, Meta(ge=60, le=3600)] = 600


class SignInSettings(Struct, frozen=True):
    # How long a browser or a command line stays signed in.
    device_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    # How long the link of an invitation works.
    invitation_days: Annotated[int, Meta(ge=1, le=365)] = 7
    # How long the code of `qd login` can be approved.
    code_seconds: Annotated[int, Meta(ge=10, le=3600)] = 600
    # Passwords and codes that may be tried within the window, for one account and from one address. Further tries are
    # answered 429.
    tries_per_account: Count = 20
    tries_per_address: Count = 100
    tries_window_seconds: Annotated[int, Meta(ge=1, le=24 * 3600)] = 900


class TokenSettings(Struct, frozen=True):
    default_life_seconds: Annotated[int, Meta(ge=1, le=_TEN_YEARS_SECONDS)] = 24 * 3600
    max_life_seconds: Annotated[int, Meta(ge=1, le=_TEN_YEARS_SECONDS)] = 30 * 24 * 3600


class ReceiptSettings(Struct, frozen=True):
    keep_days: ReceiptDays = 7
    sweep_interval_seconds: Seconds = 3600.0
    sweep_batch: Count = 1000


class AuditSettings(Struct, frozen=True):
    # None: as stored in the database, initially a year.
    keep_days: KeepDays | None = None


class RetentionSettings(Struct, frozen=True):
    # For workspaces without a retention of their own. None: kept for ever. The settings of receipts, audit events and
    # deliveries are in their sections.
    run_days: KeepDays | None = None
    event_days: KeepDays | None = None
    file_days: KeepDays | None = None
    usage_days: KeepDays | None = None


class BlobSettings(Struct, frozen=True):
    # None: the folder `blobs` under the data directory. Otherwise s3://…, gs://…, az://…, file:///…
    store_url: str | None = None
    # Blobs that are not in the store are looked for here, while `qd admin move-blobs` moves them.
    fallback_store_url: str | None = None
    # Blobs that nothing refers to are deleted after this time.
    orphan_hours: Annotated[int, Meta(ge=1, le=24 * 365)] = 24


class BundleSettings(Struct, frozen=True):
    request_bytes: Bytes = 32 * 1024 * 1024
    unpacked_bytes: Bytes = 128 * 1024 * 1024
    entries: Count = 10_000
    skill_md_bytes: Bytes = 1024 * 1024
    frontmatter_bytes: Bytes = 64 * 1024
    frontmatter_depth: Count = 32
    frontmatter_nodes: Count = 5_000
    path_bytes: Bytes = 1024
    path_levels: Count = 32
    path_component_bytes: Bytes = 255
    all_paths_bytes: Bytes = 1024 * 1024
    extended_header_bytes: Bytes = 64 * 1024
    # CPU time. Together with the later steps, a bundle stays below a second.
    unpacking_seconds: Seconds = 0.85
    # Concurrent uploads and scans per process: uploads hold memory and disk, scans hold a CPU.
    uploads: Count = 32
    scans: Count = 2
    # Part of the slots for uploads, scans and diffs that one workspace can hold.
    workspace_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    upload_wait_seconds: Seconds = 10.0
    diff_files: Count = 1_000
    # Limits for comparisons by line: per file on each side, and for all files on both sides.
    diff_file_bytes: Bytes = 256 * 1024
    diff_bytes: Bytes = 512 * 1024
    # Queued comparisons per process, including those that are computed. As many as scans are computed at a time.
    diffs: Count = 8

    def per_workspace(self, total: int) -> int:
        return max(1, int(total * self.workspace_share))


class WorkerSettings(Struct, frozen=True):
    # Worker processes of `qd serve`; `qd worker` is one.
    processes: Count = 1
    concurrency: Count = 100
    # A worker without a heartbeat for this long is presumed dead, and its runs are recovered. It sends four heartbeats
    # per lease. A shorter lease would take runs from a worker that is only paused, a longer one delays recovery.
    lease_seconds: Seconds = 20.0
    sweep_seconds: Seconds = 3.0
    # For this long after a run gave its slot to another workspace, its own uses at most half of each worker's slots.
    lending_pause_seconds: Seconds = 10.0


class RunSettings(Struct, frozen=True):
    # None: only the slots of workers limit a workspace.
    active_per_workspace: Count | None = None
    # Consecutive attempts without a stored step, after which the run is presumed to crash its workers and fails.
    barren_attempts: Count = 5
    max_steps: Count = 100
    max_tokens: Count = 2_000_000
    max_seconds: Seconds = 3600.0
    # Text of inputs that a run takes before a step; the rest waits for the next step. It must fit into the context
    # (`model.context_tokens`) beside the conversation. One input is always taken, whatever its size.
    step_input_bytes: Bytes = 256 * 1024
    # Shortest time between two notifications with streamed text.
    delta_seconds: Seconds = 0.05
    # When a worker was lost during a call that may have taken effect: ask a person, or tell the model at once.
    unknown_outcome: Literal["ask", "tell_model"] = "ask"
    # When an answer ends at the limit of output tokens or at a content filter: keep it, or let the run fail.
    cut_off_answer: Literal["keep", "fail"] = "keep"


_ACTION_EXPIRY_SECONDS = 7 * 24 * 3600
ActionExpiry = Annotated[int, Meta(ge=1, le=_TEN_YEARS_SECONDS)]


class ActionSettings(Struct, frozen=True):
    # An action without an answer counts as denied after this time.
    expiry_approval_seconds: ActionExpiry = _ACTION_EXPIRY_SECONDS
    expiry_tool_result_seconds: ActionExpiry = _ACTION_EXPIRY_SECONDS
    expiry_unknown_outcome_seconds: ActionExpiry = _ACTION_EXPIRY_SECONDS
    expiry_budget_seconds: ActionExpiry = _ACTION_EXPIRY_SECONDS


class FileSettings(Struct, frozen=True):
    # Largest uploaded file.
    request_bytes: Bytes = 256 * 1024 * 1024
    # Concurrent uploads per process. Each holds up to `request_bytes` of disk.
    uploads: Count = 16
    # Attachments of one input.
    attachments: Count = 20


class StreamSettings(Struct, frozen=True):
    # Proxies close a silent connection after a minute.
    heartbeat_seconds: Seconds = 15.0
    # A stream must end within a second after its credential.
    check_seconds: Annotated[float, Meta(gt=0, le=1)] = 0.8
    send_seconds: Seconds = 10.0
    queue_deltas: Count = 256
    # Open streams per process.
    per_credential: Count = 200
    per_workspace: Count = 1000


class EncryptionSettings(Struct, frozen=True):
    # Base64 of 32 bytes each, separated by commas. The first encrypts the secrets of webhooks and credentials, all
    # decrypt them. None: the keys in the file `encryption.keys` of the data directory. Never part of an error message:
    # checked where they are used.
    keys: str | None = None


class WebhookSettings(Struct, frozen=True):
    # Allows webhooks to private networks. Callers that can create webhooks could use them to probe these networks.
    allow_private_addresses: bool = False
    allow_http: bool = False
    per_workspace: Count = 20
    # For one attempt, from the DNS lookup to the response.
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0
    # Pauses after failed attempts. The first attempt is immediate, so there is one attempt more than pauses.
    retry_seconds: Annotated[str, Meta(pattern=r"^[0-9]{1,7}(,[0-9]{1,7}){0,19}$")] = (
        "5,300,1800,7200,18000,36000,50400,72000,86400"
    )
    disable_after_days: Annotated[int, Meta(ge=1, le=3650)] = 5
    # Concurrent attempts per worker: in total, and to one host.
    concurrency: Count = 32
    per_host: Count = 8
    poll_seconds: Seconds = 1.0
    keep_days: KeepDays = 30


class CredentialSettings(Struct, frozen=True):
    per_workspace: Count = 200
    # For the answer of a token endpoint.
    token_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0


class OidcSettings(Struct, frozen=True):
    # A YAML file with the OpenID providers. None: there are none.
    providers_file: Annotated[str, Meta(min_length=1)] | None = None
    # JSON: the client secrets by the names of their providers, so that the file needs none. Never part of an error
    # message: read in openid/providers.py.
    client_secrets: str | None = None
    # Addresses that are not public, at which providers may be nevertheless.
    allowed_addresses: AddressExceptions | None = None
    # For one request to a provider, with its answer.
    request_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0
    # By how much the clocks of a provider may differ from ours.
    clock_skew_seconds: Annotated[float, Meta(ge=0, le=600)] = 60.0
    # How old the discovery document and the keys of a provider may get.
    discovery_seconds: Seconds = 3600.0
    # Shortest time between two requests for keys that tokens with unknown keys cause.
    key_pause_seconds: Seconds = 10.0
    # How often a provider is asked whether a person who has signed in there may stay.
    refresh_seconds: Seconds = 300.0
    # How long a sign-in lasts without a confirmation of the provider.
    grace_seconds: Seconds = 24 * 3600.0
    # How long memberships that a provider gave last without a confirmation, as after a sign-out.
    membership_days: Annotated[int, Meta(ge=1, le=365)] = 30


class MetricsSettings(Struct, frozen=True):
    host: str = "127.0.0.1"
    # None: no metrics.
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None


class LogSettings(Struct, frozen=True):
    level: Annotated[str, Meta(pattern=r"^(debug|info|warning|error)$")] = "info"
    # An event loop that one callback holds up for so long is reported. 0: it is not.
    blocked_loop_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.1
    # Successful ones. None: unless stderr is a terminal.
    requests: bool | None = None


class Settings(Struct, frozen=True):
    server: ServerSettings = ServerSettings()
    database: DatabaseSettings = DatabaseSettings()
    http: HttpSettings = HttpSettings()
    limit: LimitSettings = LimitSettings()
    submit: SubmitSettings = SubmitSettings()
    fork: ForkSettings = ForkSettings()
    key: KeySettings = KeySettings()
    token: TokenSettings = TokenSettings()
    sign_in: SignInSettings = SignInSettings()
    receipt: ReceiptSettings = ReceiptSettings()
    audit: AuditSettings = AuditSettings()
    retention: RetentionSettings = RetentionSettings()
    blob: BlobSettings = BlobSettings()
    bundle: BundleSettings = BundleSettings()
    worker: WorkerSettings = WorkerSettings()
    run: RunSettings = RunSettings()
    action: ActionSettings = ActionSettings()
    file: FileSettings = FileSettings()
    sandbox: SandboxSettings = SandboxSettings()
    model: ModelSettings = ModelSettings()
    stream: StreamSettings = StreamSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    webhook: WebhookSettings = WebhookSettings()
    credential: CredentialSettings = CredentialSettings()
    mcp: McpSettings = McpSettings()
    oidc: OidcSettings = OidcSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()

    @property
    def data_dir(self) -> Path:
        return Path(self.server.data_dir).expanduser().absolute()

    @property
    def default_retention(self) -> RetentionDays:
        """Without `audit_days`, which are stored in the database."""
        return RetentionDays(
            run_days=self.retention.run_days,
            event_days=self.retention.event_days,
            file_days=self.retention.file_days,
            receipt_days=self.receipt.keep_days,
            delivery_days=self.webhook.keep_days,
            usage_days=self.retention.usage_days,
        )


def variable(section: str, field: str) -> str:
    return f"{PREFIX}_{section}_{field}".upper()


def variables() -> list[str]:
    """The names of all environment variables, in order. A test compares them with the documentation."""
    return [
        variable(section.name, field.name)
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    ]


def read_settings(environ: Mapping[str, str]) -> Settings:
    faults: list[str] = []
    sections: dict[str, Any] = {}
    for section in msgspec.structs.fields(Settings):
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(section.type):
            text = environ.get(variable(section.name, field.name), "")
            if text == "":
                continue
            try:
                values[field.name] = msgspec.convert(text, field.type, strict=False, dec_hook=_parse)
            except msgspec.ValidationError as fault:
                faults.append(f"{variable(section.name, field.name)}={text!r}: {fault}")
        sections[section.name] = section.type(**values)
    if sections["server"].health_port is not None and sections["server"].health_port == sections["server"].port:
        faults.append("QUARTERDECK_SERVER_HEALTH_PORT must differ from QUARTERDECK_SERVER_PORT")
    metrics_port = sections["metrics"].port
    if metrics_port is not None and metrics_port in (sections["server"].port, sections["server"].health_port):
        faults.append("QUARTERDECK_METRICS_PORT must differ from the other ports")
    if sections["database"].owner_url is not None and sections["database"].url is None:
        faults.append("QUARTERDECK_DATABASE_OWNER_URL is set without QUARTERDECK_DATABASE_URL")
    if sections["database"].direct_url is not None and sections["database"].url is None:
        faults.append("QUARTERDECK_DATABASE_DIRECT_URL is set without QUARTERDECK_DATABASE_URL")
    if faults:
        raise SettingsError("; ".join(faults))
    return Settings(**sections)


def _parse(type_: Any, text: str) -> Any:
    return type_.parse(text)
