"""Operations on models."""

from uuid import UUID

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import operation
from quarterdeck.db.database import Connection
from quarterdeck.models.catalog import ModelCatalog, ModelList


@operation(
    summary="List the models that sessions can use",
    description="`default` is used by sessions that name no model. `items` are suggestions of the operator: a session "
    "can name any model of the listed providers, as `provider:name`.",
    permission=Permission.WORKSPACE_READ,
    success="The default model, the configured providers and the suggested models.",
)
async def list_models(access: Access, models: ModelCatalog, call: Call[None]) -> ModelList:
    async def show(_: Connection, __: Principal, ___: UUID) -> ModelList:
        return models.listed()

    return await access.read(call, visible_workspace(call), show)
