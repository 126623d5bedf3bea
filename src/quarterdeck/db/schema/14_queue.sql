-- Our part of the job queue. Its tables are those of the library, which are created before this schema.

-- Workers take turns between workspaces (functions/turns.sql), so the queue must know the workspace of each job.
ALTER TABLE jobs.procrastinate_jobs
    -- The default is for jobs that the library adds itself.
    ADD COLUMN workspace_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    -- Another workspace needs the slot of this job.
    ADD COLUMN leaving boolean NOT NULL DEFAULT false,
    -- While the job waits: when another may be asked to leave its slot to it. At first it may be about to get a free one.
    ADD COLUMN ask_at timestamptz NOT NULL DEFAULT now() + interval '0.5 seconds',
    -- For metrics: how long runs wait for a worker.
    ADD COLUMN queued_at timestamptz NOT NULL DEFAULT now();

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
