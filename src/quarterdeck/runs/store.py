"""The one call that submits inputs."""

from collections.abc import Sequence

from quarterdeck.access.model import CredentialKind
from quarterdeck.db.arrays import boolean_array, bytea_array, text_array, uuid_array
from quarterdeck.db.database import Connection
from quarterdeck.runs.model import Submission, Submitted, Verdict

_SUBMIT = """
SELECT verdict, body, api_key_id FROM submit_inputs(
    %s::bytea[], %s::boolean[], %s::uuid[], %s::uuid[], %s::text[], %s::uuid[], %s::uuid[], %s::text[], %s::bytea[])
"""


async def submit(connection: Connection, batch: Sequence[Submission]) -> list[Submitted]:
    """One verdict for each submission, in their order, all in one transaction."""
    cursor = await connection.execute(
        _SUBMIT,
        (
            bytea_array(item.credential.secret_hash for item in batch),
            boolean_array(item.credential.kind is CredentialKind.SESSION_TOKEN for item in batch),
            uuid_array(item.session_id for item in batch),
            uuid_array(item.workspace_id for item in batch),
            text_array(item.text for item in batch),
            uuid_array(item.input_id for item in batch),
            uuid_array(item.fresh_run_id for item in batch),
            text_array(item.idempotency_key for item in batch),
            bytea_array(item.fingerprint for item in batch),
        ),
        prepare=True,
    )
    return [Submitted(Verdict(verdict), body, key_id) for verdict, body, key_id in await cursor.fetchall()]
