-- Titles that sessions get from their first input.

ALTER TABLE sessions
    -- The title is removed when this event is deleted. NULL: there is no title, or a person has set it.
    ADD COLUMN title_event_id bigint;
