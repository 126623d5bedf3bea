// Actions on the entries of a conversation.

import { post, remove } from "../api.js";
import { can } from "../credential.js";
import { notice } from "../notices.js";
import { navigate } from "../router.js";
import { setDraft } from "./drafts.js";
import { pendingFiles } from "./pending_files.js";

/** The actions of `renderBlock` that change the session. `onError(error)` shows why one has failed. A session token cannot fork. */
export function sessionActions(sessionId, signal, onError) {
  const path = `/sessions/${sessionId}`;

  /** Ignores a second click while the request is in flight. */
  const action = (act) => async (block) => {
    if (block.isActing) return;
    block.isActing = true;
    try {
      await act(block);
    } catch (error) {
      if (!signal.aborted) onError(error);
    } finally {
      block.isActing = false;
    }
  };

  const edit = action(async ({ eventId, text, attachments }) => {
    const forked = await post(`${path}/fork`, { before_event_id: eventId }, signal);
    setDraft(forked.id, text);
    pendingFiles(forked.id).restore(attachments);
    notice("Edit the message and send it. The original session is unchanged.");
    navigate(`/sessions/${forked.id}`);
  });
  const discard = action(({ inputId }) => remove(`${path}/inputs/${inputId}`, signal));
  const retry = action(({ runId }) => post(`/runs/${runId}/retry`, undefined, signal));
  return { edit: can("session.manage") ? edit : null, withdraw: discard, drop: discard, retry };
}

export const NO_ACTIONS = { edit: null, withdraw: null, drop: null, retry: null };
