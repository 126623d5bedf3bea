-- The same for the job queue: what its library and runs/store.py need. The library's functions
-- and triggers run with the privileges of their caller.

REVOKE ALL ON ALL TABLES IN SCHEMA jobs FROM PUBLIC, {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobs FROM PUBLIC, {role};
REVOKE ALL ON ALL ROUTINES IN SCHEMA jobs FROM PUBLIC, {role};
REVOKE ALL ON SCHEMA jobs FROM PUBLIC, {role};

GRANT USAGE ON SCHEMA jobs TO {role};

GRANT SELECT, INSERT, UPDATE (status, abort_requested, worker_id, leaving, ask_at), DELETE ON jobs.procrastinate_jobs TO {role};
GRANT USAGE ON SEQUENCE jobs.procrastinate_jobs_id_seq TO {role};
GRANT SELECT, INSERT, UPDATE (last_heartbeat), DELETE ON jobs.procrastinate_workers TO {role};
-- Written by triggers.
GRANT INSERT ON jobs.procrastinate_events TO {role};
GRANT USAGE ON SEQUENCE jobs.procrastinate_events_id_seq TO {role};
GRANT SELECT (job_id), UPDATE (job_id) ON jobs.procrastinate_periodic_defers TO {role};

-- All functions: a new release of the library may call others, and none can do more than its caller.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA jobs TO {role};
