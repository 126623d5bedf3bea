-- Nothing in the tables: the function push_skill_version() is new, and processes of this release call it.
SELECT;
