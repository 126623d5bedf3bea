"""People: profiles, devices, invitations and members."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from quarterdeck.core.actors import ActorBody, Role
from quarterdeck.core.example_ids import ADA, EVENING, MORNING, WORKSPACE
from quarterdeck.core.text_types import Email, Line, Moment, Text, check_email

SHORTEST_PASSWORD = 10
# Long enough for every password manager, and hashed in milliseconds.
_LONGEST_PASSWORD = 1000

NewPassword = Annotated[
    str,
    Meta(
        min_length=SHORTEST_PASSWORD,
        max_length=_LONGEST_PASSWORD,
        description=f"At least {SHORTEST_PASSWORD} characters.",
    ),
]
Password = Annotated[str, Meta(max_length=_LONGEST_PASSWORD)]
DeviceName = Annotated[Line, Meta(description="How the device describes itself, for the list of devices.")]

_BROWSER = "Browser"

# Members.


class MemberBody(Struct, frozen=True):
    user: ActorBody
    role: Annotated[Role, Meta(description="Of a former member: the last role.")]
    joined_at: Annotated[Moment, Meta(description="When the person joined, or last rejoined.")]
    ended_at: Annotated[Moment | None, Meta(description="When the person left. null: still a member.")]

    @property
    def id(self) -> UUID:
        """The sort key of pages. Not part of the body."""
        return self.user.user_id


class MemberPage(Struct, frozen=True):
    items: list[MemberBody]
    next_cursor: UUID | None


class ChangeMemberBody(Struct, frozen=True):
    role: Role


# Invitations.


class CreateInvitationBody(Struct, frozen=True):
    email: Email
    role: Annotated[Role, Meta(description="Only an owner can invite owners.")] = Role.MEMBER

    def __post_init__(self) -> None:
        check_email(self.email)


class InvitationBody(Struct, frozen=True, kw_only=True):
    id: UUID
    email: str
    role: Role
    created_at: Moment
    created_by: Annotated[ActorBody | None, Meta(description="null: the operator.")]
    expires_at: Moment
    accepted_at: Annotated[Moment | None, Meta(description="null: nobody has accepted it.")]
    withdrawn_at: Moment | None


class CreatedInvitationBody(InvitationBody, frozen=True, kw_only=True):
    token: Annotated[
        str | UnsetType,
        Meta(
            description="Shown only once, never in a replayed response. Whoever has it can join: the link for the "
            "person is the address of the console followed by `#/invitation?token=` and this token."
        ),
    ] = UNSET


class InvitationPage(Struct, frozen=True):
    items: list[InvitationBody]
    next_cursor: UUID | None


class InvitationTokenBody(Struct, frozen=True):
    token: Annotated[str, Meta(max_length=200)]


class InvitationSummaryBody(Struct, frozen=True):
    """What the holder of an invitation may know before they accept it."""

    email: str
    workspace_name: Annotated[
        str | None, Meta(description="null: the link sets a new password for an existing account.")
    ]
    role: Role | None
    invited_by: Annotated[str | None, Meta(description="Name or email address of a person. null: the operator.")]
    has_account: Annotated[
        bool,
        Meta(description="The address belongs to an account: sign in and use `join_workspace` instead of accepting."),
    ]
    may_change_email: Annotated[bool, Meta(description="Whether `accept_invitation` takes another email address.")]


class AcceptInvitationBody(Struct, frozen=True):
    token: Annotated[str, Meta(max_length=200)]
    password: NewPassword
    display_name: Annotated[Line | None, Meta(description="null: stays as it is.")] = None
    email: Annotated[Email | None, Meta(description="Only for links of the operator. null: stays as it is.")] = None
    device_name: DeviceName = _BROWSER

    def __post_init__(self) -> None:
        if self.email is not None:
            check_email(self.email)


# Signing in.


class SignInBody(Struct, frozen=True):
    email: Annotated[Text, Meta(max_length=254)]
    password: Password
    device_name: DeviceName = _BROWSER
    invitation_token: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        Meta(description="Accepts the invitation, unless the person is a member already."),
    ] = None


class MembershipBody(Struct, frozen=True):
    workspace_id: UUID
    workspace_name: str
    role: Role


class ProfileBody(Struct, frozen=True):
    user: ActorBody
    device_id: Annotated[UUID, Meta(description="The calling device.")]
    has_password: bool
    workspaces: Annotated[list[MembershipBody], Meta(description="Where the person is a member, first joined first.")]


class ChangeProfileBody(Struct, frozen=True):
    display_name: Annotated[Line | None, Meta(description="null: the email address is shown.")]


class ChangePasswordBody(Struct, frozen=True):
    new_password: NewPassword
    current_password: Annotated[Password | None, Meta(description="null: the account has no password yet.")] = None


# Devices.


class DeviceKind(StrEnum):
    BROWSER = "browser"
    COMMAND_LINE = "command_line"


class DeviceBody(Struct, frozen=True):
    id: UUID
    kind: DeviceKind
    name: str
    prefix: Annotated[str, Meta(description="Marker, environment and eight characters of the secret.")]
    address: Annotated[str | None, Meta(description="Address of the client or its proxy at the sign-in.")]
    created_at: Moment
    expires_at: Moment
    last_used_at: Moment | None


class DevicePage(Struct, frozen=True):
    items: list[DeviceBody]
    next_cursor: UUID | None


# Signing in on the command line.


class CreateDeviceCodeBody(Struct, frozen=True):
    device_name: DeviceName


class DeviceCodeBody(Struct, frozen=True):
    device_code: Annotated[str, Meta(description="For `redeem_device_code`. Keep it secret.")]
    user_code: Annotated[str, Meta(description="For the person: both sides show it.")]
    expires_at: Moment
    interval_seconds: Annotated[int, Meta(description="Time to wait between two calls of `redeem_device_code`.")]


class RedeemDeviceCodeBody(Struct, frozen=True):
    device_code: Annotated[str, Meta(max_length=200)]


class DeviceCodeState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


class RedeemedDeviceCodeBody(Struct, frozen=True):
    state: Annotated[DeviceCodeState, Meta(description="approved: `secret` is shown, this once.")]
    secret: Annotated[str | None, Meta(description="Of the new device.")] = None
    user: ActorBody | None = None


class UserCodeBody(Struct, frozen=True):
    user_code: Annotated[str, Meta(max_length=40, description="In either case, with or without the hyphen.")]


class AnswerDeviceCodeBody(Struct, frozen=True):
    user_code: Annotated[str, Meta(max_length=40, description="In either case, with or without the hyphen.")]
    approve: bool


class PendingDeviceCodeBody(Struct, frozen=True):
    user_code: str
    device_name: str
    address: Annotated[str | None, Meta(description="Where the code was requested.")]
    expires_at: Moment


class AnsweredDeviceCodeBody(Struct, frozen=True):
    device_name: str
    approved: bool


_DEVICE = DeviceBody(
    UUID("0192f0d7-2a10-7b3c-9d55-3c1e8f7a6b02"),
    DeviceKind.BROWSER,
    "Firefox on Linux",
    "qdd_live_7kQ2vB9x",
    "203.0.113.7",
    MORNING,
    EVENING,
    None,
)
_INVITATION = InvitationBody(
    id=UUID("0192f0d7-5e44-7a90-8b1f-6d2c4e9a7f03"),
    email="grace@example.com",
    role=Role.MEMBER,
    created_at=MORNING,
    created_by=ADA,
    expires_at=EVENING,
    accepted_at=None,
    withdrawn_at=None,
)
# Truncated: complete secrets would trigger secret scanners.
_TOKEN, _DEVICE_CODE, _DEVICE_SECRET = "qdi_live_Zr4kW8pL…", "qdc_live_M3xN7bQv…", "qdd_live_7kQ2vB9x…"
_USER_CODE = "BDFG-HJKL"

EXAMPLES = (
    ADA,
    MemberPage([MemberBody(ADA, Role.OWNER, MORNING, None)], None),
    MemberBody(ADA, Role.OWNER, MORNING, None),
    ChangeMemberBody(Role.ADMIN),
    CreateInvitationBody("grace@example.com"),
    CreatedInvitationBody(**asdict(_INVITATION), token=_TOKEN),
    InvitationPage([replace(_INVITATION, accepted_at=EVENING)], None),
    InvitationTokenBody(_TOKEN),
    InvitationSummaryBody("grace@example.com", "Analytical engines", Role.MEMBER, "Ada Lovelace", False, False),
    AcceptInvitationBody(_TOKEN, "a long pass phrase", "Grace Hopper"),
    SignInBody("ada@example.com", "a long pass phrase"),
    ProfileBody(ADA, _DEVICE.id, True, [MembershipBody(WORKSPACE, "Analytical engines", Role.OWNER)]),
    ChangeProfileBody("Ada Byron"),
    ChangePasswordBody("another long pass phrase", "a long pass phrase"),
    DevicePage([_DEVICE], None),
    CreateDeviceCodeBody("qd on workstation"),
    DeviceCodeBody(_DEVICE_CODE, _USER_CODE, EVENING, 2),
    RedeemDeviceCodeBody(_DEVICE_CODE),
    RedeemedDeviceCodeBody(DeviceCodeState.APPROVED, _DEVICE_SECRET, ADA),
    UserCodeBody(_USER_CODE),
    AnswerDeviceCodeBody(_USER_CODE, approve=True),
    PendingDeviceCodeBody(_USER_CODE, "qd on workstation", "203.0.113.7", EVENING),
    AnsweredDeviceCodeBody("qd on workstation", approved=True),
)
