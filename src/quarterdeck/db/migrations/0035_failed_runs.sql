-- find_predecessor() read all runs of the session. Only failed runs have entries, so other runs cost nothing.
CREATE INDEX runs_failed ON runs (session_id, last_input) WHERE state = 'failed';
