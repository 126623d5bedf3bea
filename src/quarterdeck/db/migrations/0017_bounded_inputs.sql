-- Bounds for the inputs that wait in a run.

-- UTF-8 bytes of the texts that the run has not consumed. Runs that are active now start at 0: for them the bound applies to
-- what is added.
ALTER TABLE runs ADD COLUMN unconsumed_bytes bigint NOT NULL DEFAULT 0;

-- Of input.consumed only: the id of the event input.accepted in the same session, which has the text. NULL in rows of
-- earlier releases.
ALTER TABLE session_events ADD COLUMN input_event_id bigint;
