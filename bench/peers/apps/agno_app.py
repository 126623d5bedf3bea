"""AgentOS with the durable queue that its documentation recommends: accepted is a committed row in PostgreSQL."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from agno.agent import Agent
from agno.db.postgres import PostgresDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.os import AgentOS, QueueConfig
from model_call import answer


@dataclass
class StandIn(Model):
    id: str = "bench"

    async def ainvoke(self, messages: list[Message], **_: Any) -> ModelResponse:
        return ModelResponse(role="assistant", content=await answer(str(messages[-1].content)))

    async def ainvoke_stream(self, messages: list[Message], **_: Any) -> AsyncIterator[ModelResponse]:
        yield await self.ainvoke(messages)

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError("AgentOS runs agents asynchronously")

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError("AgentOS runs agents asynchronously")

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


database = PostgresDb(db_url=os.environ["BENCH_DATABASE_URL"])
agent = Agent(id="bench", name="bench", model=StandIn(), db=database, telemetry=False)
queue = QueueConfig(
    durable=True,
    # Like the others: a run whose process dies is taken up again. The default fails it visibly.
    max_attempts=3,
    # The default of 1,000 answers 429 to what this benchmark sends in a second or two.
    max_queue_depth=1_000_000,
    # Soon enough to see the recovery. The defaults are 60 and 30.
    lock_grace_seconds=6,
    stop_timeout_seconds=2,
    retry_delay_seconds=1,
)
app = AgentOS(agents=[agent], db=database, queue=queue, telemetry=False).get_app()
