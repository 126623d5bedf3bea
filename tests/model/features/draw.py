"""Draws the next step among those that are possible and interesting in the present state. Small limits and changes
while a run waits are common: there features meet."""

import random
from typing import Any

from tests.model.features.steps import (
    CLIENT_TOOLS,
    Answer,
    Cancel,
    ChangeAgent,
    ChangeSession,
    Delete,
    Drop,
    ExpireActions,
    ExpireLog,
    Fork,
    GrantWrites,
    Kill,
    Limits,
    NewAgent,
    NewSession,
    PushVersion,
    Resolve,
    Retry,
    SetAgent,
    Step,
    Submit,
    Version,
)
from tests.model.features.world import Json, Session, World

Weighted = list[tuple[float, Step]]
_RULES = ("allow", "ask", "deny")
_TOOLS = (*CLIENT_TOOLS * 4, *("current_time", "add_note") * 2, "list_files")
_RUN_LIMITS = (1, 18, 19, 36, 60, None, None)
_SESSION_LIMITS = (18, 19, 40, 100, None, None)
_HIGH_LIMITS = (1_000, 500_000, None)


class Draw:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def settings(self, contexts: tuple[int, ...], compactions: tuple[str, ...]) -> tuple[int, str]:
        return self._random.choice(contexts), self._random.choice(compactions)

    def length(self) -> int:
        return self._random.randint(10, 25)

    def step(self, world: World) -> Step:
        if all(session.is_deleted for session in world.sessions):
            return self._first(world)
        session = self._session(world)
        found = self._changes(world, session)
        if session.open_actions:
            found += self._while_waiting(world, session)
        elif world.question(session) is not None:
            found += self._while_asking(world, session)
        else:
            found += self._while_idle(world, session)
        return self._random.choices([step for _, step in found], [weight for weight, _ in found])[0]

    def _first(self, world: World) -> Step:
        if not world.agents and self._random.random() < 0.4:
            return NewAgent(self._version())
        agent = 0 if world.agents else None
        return NewSession(self._limits(), self._policy(), self._sandbox(), agent)

    def _session(self, world: World) -> Session:
        alive = [one for one in world.sessions if not one.is_deleted]
        if world.focus in alive and self._random.random() < 0.85:
            assert world.focus is not None
            return world.focus
        return self._random.choice(alive)

    # --- by the state of the session ---

    def _while_idle(self, world: World, session: Session) -> Weighted:
        at = session.number - 1
        found: Weighted = [
            (20.0 if session.is_fresh else 6.0, self._submit(at)),
            self._attach(world, session),
            (0.5, ExpireLog(at)),
        ]
        if session.runs and session.runs[-1]["state"] in ("failed", "cancelled"):
            found += [(6, Retry(at)), (2, Drop(at))]
        return found

    def _while_asking(self, world: World, session: Session) -> Weighted:
        at = session.number - 1
        return [
            (3, Answer(at)),
            (6, Answer(at, self._calls())),
            (1, Answer(at, status=400)),
            (1.5, self._submit(at)),
            self._attach(world, session),
            (0.5, Cancel(at)),
            (0.5, Kill(at)),
        ]

    def _while_waiting(self, world: World, session: Session) -> Weighted:
        at = session.number - 1
        found: Weighted = [(2.5, Submit(at)), (0.5, self._submit(at)), (0.5, Cancel(at)), (0.4, ExpireActions(at))]
        kinds = sorted({one["kind"] for one in session.open_actions})
        scope = (session.open_actions[0]["reached"] or {}).get("scope", "run")
        choices: dict[str, tuple[Step, ...]] = {
            "budget": (
                Resolve(at, "budget", "raise"),
                Resolve(at, "budget", "raise", more=self._random.choice((1, 18, 1_000))),
                Resolve(at, "budget", "stop"),
                ChangeSession(at, limits={scope: self._random.choice(_HIGH_LIMITS)}),
            ),
            "tool_result": (
                Resolve(at, "tool_result", "small", position=0),
                Resolve(at, "tool_result", "small"),
                Resolve(at, "tool_result", "large"),
                ChangeSession(at, policy=self._policy()),
            ),
            "approval": (
                Resolve(at, "approval", "allow"),
                Resolve(at, "approval", self._random.choice(("allow", "deny", "remember", "change")), position=0),
                ChangeSession(at, policy=self._policy()),
            ),
            "unknown_outcome": tuple(Resolve(at, "unknown_outcome", choice) for choice in ("retry", "done", "failed")),
        }
        for kind in kinds:
            found += [(10 / len(choices[kind]), step) for step in choices[kind]]
        if session.active is not None and session.active["id"] in session.raised_runs:
            found.append((8, ChangeSession(at, limits={scope: self._random.choice(_HIGH_LIMITS)})))
        return found

    def _changes(self, world: World, session: Session) -> Weighted:
        """Possible at any time."""
        at = session.number - 1
        found: Weighted = [
            (0.6, ChangeSession(at, policy=self._policy())),
            (0.6, ChangeSession(at, limits={self._scope(): self._random.choice((*_RUN_LIMITS, *_HIGH_LIMITS))})),
            (0.3, ChangeSession(at, sandbox=self._sandbox())),
            (0.2, ChangeSession(at, archived=session.shown["archived_at"] is None)),
            (2.0, ChangeSession(at, archived=False)) if session.shown["archived_at"] else (0, Drop(at)),
            (0.7, GrantWrites(self._random.randint(0, 5))),
            (0.3, NewSession(self._limits(), self._policy(), self._sandbox())),
            (0.2, Drop(at)),
            (0.15, Delete(at)) if len(world.sessions) > 1 else (0, Drop(at)),
        ]
        if session.log and not session.is_fresh and len(world.sessions) < 5:
            found.append((1.2, Fork(at, self._random.randint(1, len(session.log)))))
        if world.agents:
            agent = self._random.randrange(len(world.agents))
            found += [
                (2.5, PushVersion(agent, self._version())),
                (0.5, ChangeAgent(agent, self._random.choice((None, 1, 2)))),
                (0.2, SetAgent(at, self._random.choice((None, agent)))),
                (0.3, ChangeSession(at, inherit=(self._random.choice(("limits", "tool_policy", "sandbox")),))),
                (0.1, ChangeAgent(agent, archived=True)),
            ]
        return found

    # --- values ---

    def _submit(self, at: int) -> Step:
        return Submit(at, self._random.choices(("steer", "queue", "interrupt"), (6, 2, 1))[0])

    def _attach(self, world: World, session: Session) -> tuple[float, Step]:
        """The same name again, if there is one: more than twenty contents of one name get other names."""
        names = [one.file for one in world.attached if one.session is session]
        copies = self._random.choice((1, 20) if names else (1,))
        chosen = self._random.choice(names or ("text", "binary", "binary", "hidden", "long", "long"))
        return 3.0 if names else 1.5, Submit(session.number - 1, file=chosen, copies=copies)

    def _calls(self) -> tuple[str, ...]:
        return tuple(self._random.choice(_TOOLS) for _ in range(self._random.choice((1, 1, 2, 2, 3, 5))))

    def _scope(self) -> str:
        return self._random.choice(("run", "session"))

    def _limits(self) -> Limits:
        return Limits(self._random.choice(_RUN_LIMITS), self._random.choice(_SESSION_LIMITS))

    def _policy(self) -> dict[str, str]:
        names: list[Any] = [name for name in ("look_up", "book", "add_note", "*") if self._random.random() < 0.35]
        return {name: self._random.choice(_RULES) for name in names}

    def _sandbox(self) -> Json | None:
        return self._random.choice((None, {}))

    def _version(self) -> Version:
        limits = self._limits() if self._random.random() < 0.6 else Limits(*self._random.choices(_HIGH_LIMITS, k=2))
        return Version(limits, self._policy(), self._sandbox())
