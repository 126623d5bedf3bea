"""A person, made up for the document."""

from quarterdeck.story import USER
from quarterdeck.workspaces.model import ActorBody

ADA = ActorBody(USER, "Ada Byron", "ada@example.com")
