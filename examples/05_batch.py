"""Batching is declared: one run per 10 events, or after 5 seconds with fewer.

for n in $(seq 12); do tidegate assets emit clicks --extra "{\"n\": $n}"; done
"""

from __future__ import annotations

from datetime import timedelta

from app.sdk import DAG, Asset, AssetSchedule, Batch, task

clicks = Asset("clicks")

with DAG(
    "batch_of_clicks",
    schedule=AssetSchedule(clicks, batch=Batch(max_events=10, max_wait=timedelta(seconds=5))),
    tags=["example"],
    description="Collects events into batches by count and time",
):

    @task
    def count(triggering_asset_events=None):
        numbers = [event.extra.get("n") for event in triggering_asset_events[clicks]]
        print(f"{len(numbers)} clicks: {numbers}")
        return len(numbers)

    count()
