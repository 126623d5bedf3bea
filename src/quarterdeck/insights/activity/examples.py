"""An example of activity figures for the OpenAPI document."""

from datetime import timedelta

from quarterdeck.core.example_ids import EVENING
from quarterdeck.insights.activity.model import ActivityBody, InputCount, RunsByState, TimeToStart

EXAMPLES = (
    ActivityBody(
        since=EVENING - timedelta(seconds=5),
        until=EVENING + timedelta(seconds=3),
        bucket_seconds=5,
        runs_by_state=RunsByState(running=1, succeeded=7, failed=1),
        inputs=[InputCount(EVENING - timedelta(seconds=5), 4), InputCount(EVENING, 9)],
        time_to_start=[
            TimeToStart(EVENING - timedelta(seconds=5), 0, None, None),
            TimeToStart(EVENING, 9, 6, 14),
        ],
    ),
)
