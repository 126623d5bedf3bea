-- The span of the request that started a run, so that the run is a part of the same trace.

ALTER TABLE runs
    -- In the format of the W3C. NULL: the request was not traced.
    ADD COLUMN traceparent text;
