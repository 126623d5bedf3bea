-- Since when a job waits, for metrics: how long runs wait for a worker. Existing jobs count from now on.

ALTER TABLE jobs.procrastinate_jobs ADD COLUMN queued_at timestamptz NOT NULL DEFAULT now();
