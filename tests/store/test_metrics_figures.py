"""Figures of the database, when some of them take too long."""

import psycopg

from quarterdeck.server.metrics_scrape import read_all
from quarterdeck.server.metrics_store import Counts
from tests.world import AS_OWNER, app_url

_ADD_JOB = """
INSERT INTO run_jobs (run_id, session_id, workspace_id, queued_at, paused_until)
VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now() - %s::interval, now() + %s::interval)
"""


def test_the_age_of_the_queue_does_not_wait_for_counts(database_url: str) -> None:
    with psycopg.connect(database_url, options=AS_OWNER) as owner:
        # The first will be due in a minute, the second has been due for 200 seconds.
        for queued, due in (("1 hour", "1 minute"), ("50 minutes", "-200 seconds"), ("100 seconds", None)):
            owner.execute(_ADD_JOB, (queued, due))
        owner.commit()
        with psycopg.connect(app_url(database_url)) as connection:
            figures = read_all(connection, "quarterdeck_app", 60)
            assert figures.counts == Counts({}, 2, {})
            assert 200 <= figures.queue_oldest_seconds < 260
            connection.rollback()
            owner.execute("LOCK TABLE app.actions")
            figures = read_all(connection, "quarterdeck_app", 60)
            assert figures.counts is None, "they would have waited for the lock"
            assert 200 <= figures.queue_oldest_seconds < 260
