-- Pushes go through perform() like every other change. submit_inputs() checks all callers itself.
DROP FUNCTION IF EXISTS push_skill_version;
