"""Signing in at OpenID providers."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.text_types import Line
from quarterdeck.people.model import DeviceName

ATTEMPT_SECONDS = 600


class ProviderBody(Struct, frozen=True):
    name: Annotated[str, Meta(description="For `begin_sign_in`.")]
    title: Annotated[Line, Meta(description="For a button.")]


class ProvidersBody(Struct, frozen=True):
    providers: Annotated[list[ProviderBody], Meta(description="In the order of the operator. Empty: there are none.")]


class BeginSignInBody(Struct, frozen=True):
    provider: Annotated[str, Meta(max_length=32, description="Its name.")]
    # Behind a `#`, so it cannot lead to another site. ASCII without blanks, for the header Location.
    return_to: Annotated[
        str,
        Meta(
            max_length=500,
            pattern=r"^/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*(?![\s\S])",
            description="The page of the console to show afterwards: what follows `#` in its address.",
        ),
    ] = "/"
    device_name: DeviceName = "Browser"


class BegunSignInBody(Struct, frozen=True):
    authorization_url: Annotated[str, Meta(description="Where to send the browser, within ten minutes.")]


class SignedOutBody(Struct, frozen=True):
    end_session_url: Annotated[
        str | None,
        Meta(
            description="Where to send the browser, so that the person is signed out at the OpenID provider too. null: "
            "the device was not signed in at a provider, or the provider has no such page."
        ),
    ]


class ProblemName(StrEnum):
    """Why somebody was not signed in: `#/sign-in?problem=…`. A closed set, without texts of providers."""

    # Too late, the second time, or in another browser than the one that began.
    EXPIRED = "expired"
    # The person or the provider said no.
    REFUSED = "refused"
    # The answer of the provider was not accepted. The log has the reason.
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    # An account with this address exists. It is not joined: whoever may sign in to it connects the provider.
    EMAIL_TAKEN = "email_taken"
    # The account at the provider, or the person who connects it, is connected with another one.
    CONNECTED_BEFORE = "connected_before"
    # No group of the person gives a role in a workspace, and nobody has invited them.
    NO_WORKSPACE = "no_workspace"


class SignInProblem(Exception):
    def __init__(self, problem: ProblemName) -> None:
        super().__init__(problem)
        self.problem = problem


class ProviderTokens(Struct, frozen=True):
    """Stored encrypted, for the device."""

    refresh_token: str | None
    # A hint for the sign-out at the provider.
    id_token: str | None

    def __repr__(self) -> str:
        return "ProviderTokens()"


class SignInAttempt(Struct, frozen=True):
    """What is remembered of a browser that was sent to a provider."""

    provider: str
    redirect_uri: str
    nonce: str
    code_verifier: str
    return_to: str
    device_name: str
    # Of the person who connects an account at the provider. None: somebody who signs in.
    device_id: UUID | None

    @property
    def origin(self) -> str:
        return "/".join(self.redirect_uri.split("/")[:3])


class EndedSession(Struct, frozen=True):
    """Of a device that was signed in at a provider."""

    device_id: UUID
    provider: str
    issuer: str
    # Of the console.
    origin: str
    # Encrypted.
    tokens: bytes


EXAMPLES = (
    ProvidersBody([ProviderBody("corporate", "Example Corp")]),
    BeginSignInBody("corporate", "/sessions"),
    BegunSignInBody("https://login.example.com/authorize?client_id=quarterdeck&state=…"),
    SignedOutBody("https://login.example.com/logout?client_id=quarterdeck"),
)
