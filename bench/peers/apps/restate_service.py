"""A virtual object a session: Restate gives it one call at a time, in the order in which it accepted them."""

import restate
from model_call import answer

sessions = restate.VirtualObject("Session")


@sessions.handler("turn")
async def turn(context: restate.ObjectContext, text: str) -> str:
    said = await context.get("turns", type_hint=list[str]) or []
    # A step of its own, as Restate's guides have it for calls of a model: what it answered is kept.
    answered = await context.run_typed("model", answer, text=text)
    context.set("turns", [*said, text, answered])
    return answered


@sessions.handler("turns", kind="shared")
async def turns(context: restate.ObjectSharedContext) -> list[str]:
    return await context.get("turns", type_hint=list[str]) or []


app = restate.app(services=[sessions])
