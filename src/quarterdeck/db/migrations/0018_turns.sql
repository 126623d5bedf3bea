-- Workers take turns between workspaces (functions/turns.sql), so the queue must know the workspace of each job.

ALTER TABLE jobs.procrastinate_jobs
    -- The default is for jobs that a process of the previous release replaces. They share one turn.
    ADD COLUMN workspace_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    -- Another workspace needs the place of this job.
    ADD COLUMN leaving boolean NOT NULL DEFAULT false,
    -- While the job waits: when another may be asked to leave its place to it. At first it may be about to get a free one.
    ADD COLUMN ask_at timestamptz NOT NULL DEFAULT now() + interval '0.5 seconds';
UPDATE jobs.procrastinate_jobs j SET workspace_id = r.workspace_id
FROM runs r WHERE j.queue_name = 'runs' AND r.id = j.queueing_lock::uuid;

-- In the order of ids of runs, which is the order of their creation.
CREATE INDEX run_jobs_waiting ON jobs.procrastinate_jobs (workspace_id, queueing_lock) WHERE status = 'todo';
CREATE INDEX run_jobs_paused ON jobs.procrastinate_jobs (workspace_id, scheduled_at)
    WHERE status = 'todo' AND scheduled_at IS NOT NULL;
CREATE INDEX run_jobs_active ON jobs.procrastinate_jobs (workspace_id, worker_id) WHERE status = 'doing';

-- When a workspace had its last turn while others waited. No foreign key: see the default above.
CREATE TABLE workspace_turns (
    workspace_id uuid PRIMARY KEY,
    last_turn_at timestamptz NOT NULL
);
