"""Batches of the demo model. There is no provider: a batch has ended when it is looked at, and an answer is made when
it is decoded."""

from collections.abc import Sequence

from quarterdeck.models.demo import DEMO, DemoModel
from quarterdeck.models.model import BatchAnswer, BatchHandle, EncodedRequest, Step, StepRequest


class DemoBatches:
    def __init__(self, model: DemoModel) -> None:
        self._model = model

    async def encode(self, custom_id: str, request: StepRequest) -> EncodedRequest:
        return EncodedRequest(custom_id, DEMO, "{}")

    async def create(self, requests: Sequence[EncodedRequest]) -> BatchHandle:
        return {"requests": [request.custom_id for request in requests]}

    async def look(self, handle: BatchHandle) -> tuple[BatchHandle, bool]:
        return handle, True

    async def answers(self, handle: BatchHandle) -> list[BatchAnswer]:
        return [BatchAnswer(custom_id, "{}") for custom_id in handle["requests"]]

    async def cancel(self, handle: BatchHandle) -> None:
        pass

    async def decode(self, body: str, request: StepRequest) -> Step:
        return await self._model.step(request, lambda _: None)
