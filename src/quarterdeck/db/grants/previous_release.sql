-- For functions/previous_release.sql.
GRANT EXECUTE ON FUNCTION app.push_skill_version TO {role};
