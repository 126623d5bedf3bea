-- The trigger was for workers of 0.1.0, which must have stopped. It read all runs of the session for each run without
-- `takes_over`.
DROP TRIGGER runs_predecessor ON runs;
DROP FUNCTION find_predecessor();
ALTER TABLE runs ALTER COLUMN takes_over SET DEFAULT '{}';
