"""The batch interfaces of OpenAI and Anthropic, called through pydantic-ai.

Imported only when a model of a provider is used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx2
from msgspec.structs import asdict
from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest

from quarterdeck.models.messages import to_messages
from quarterdeck.models.model import (
    BatchAnswer,
    BatchHandle,
    EncodedRequest,
    Model,
    ModelFailure,
    Step,
    StepRequest,
    TransientFailure,
)
from quarterdeck.models.providers import ProviderModel, reason_of, to_failure, to_parameters, with_told_schema

_HANDLES = TypeAdapter(Batch)


def batches_of(model: Model) -> "ProviderBatches | None":
    """None: the provider has none, or pydantic-ai does not know them."""
    if not isinstance(model, ProviderModel) or model.library_model.batch_max_requests is None:
        return None
    return ProviderBatches(model)


class ProviderBatches:
    def __init__(self, model: ProviderModel) -> None:
        self._model = model
        self._library = model.library_model

    async def encode(self, custom_id: str, request: StepRequest) -> EncodedRequest:
        with self._failures():
            encoded = await self._library.batch_encode(self._batch_request(custom_id, request))
        return EncodedRequest(encoded.custom_id, encoded.group, encoded.body)

    async def create(self, requests: Sequence[EncodedRequest]) -> BatchHandle:
        with self._failures():
            return _data(await self._library.batch_create([EncodedBatchRequest(**asdict(one)) for one in requests]))

    async def look(self, handle: BatchHandle) -> tuple[BatchHandle, bool]:
        with self._failures():
            batch = await self._library.batch_status(_batch(handle))
        return _data(batch), batch.status == "ended"

    async def answers(self, handle: BatchHandle) -> list[BatchAnswer]:
        with self._failures():
            results = await self._library.batch_results(_batch(handle))
        return [self._answer(result) for result in results]

    def _answer(self, result: BatchResult) -> BatchAnswer:
        if result.status == "succeeded":
            return BatchAnswer(result.custom_id, result.body)
        try:
            self._library.batch_decode(result, BatchRequest(custom_id=result.custom_id, messages=[]))
        except ModelAPIError as fault:
            return BatchAnswer(result.custom_id, None, reason_of(fault, self._model.secrets))
        return BatchAnswer(result.custom_id, None, f"The request is {result.status}.")

    async def cancel(self, handle: BatchHandle) -> None:
        with self._failures():
            await self._library.batch_cancel(_batch(handle))

    async def decode(self, body: str, request: StepRequest) -> Step:
        result = BatchResult(custom_id="", status="succeeded", body=body)
        with self._failures():
            try:
                response = self._library.batch_decode(result, self._batch_request("", request))
            except ValueError as fault:
                # Not what the provider's library expects.
                raise UnexpectedModelBehavior(str(fault)) from None
        return self._model.to_step(response, by_batch=True)

    def _batch_request(self, custom_id: str, request: StepRequest) -> BatchRequest:
        schema = request.output_schema
        if schema is not None and not self._model.takes_schema(schema):
            request = with_told_schema(request, schema)
        return BatchRequest(
            custom_id=custom_id,
            messages=to_messages(request.turns, request.instructions, self._model.name),
            model_settings=self._model.settings,
            model_request_parameters=to_parameters(request),
        )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        name, secrets = self._model.name, self._model.secrets
        try:
            yield
        except ModelAPIError as fault:
            # Without its cause, as for a step: the traceback would contain the provider's unredacted message.
            raise to_failure(fault, name, secrets) from None
        except (UserError, NotImplementedError) as fault:
            raise ModelFailure(f"{name} cannot be asked by a batch: {reason_of(fault, secrets)}") from fault
        except (UnexpectedModelBehavior, httpx2.HTTPError, httpx2.StreamError) as fault:
            raise TransientFailure(f"The batch of {name} failed: {reason_of(fault, secrets)}") from fault


def _batch(handle: BatchHandle) -> Batch:
    return _HANDLES.validate_python(handle)


def _data(batch: Batch) -> BatchHandle:
    data: BatchHandle = _HANDLES.dump_python(batch, mode="json")
    return data
