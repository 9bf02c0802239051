"""A run once both halves have arrived.

    tidegate assets emit left --extra '{"n": 1}'
    tidegate assets emit right --extra '{"n": 2}'

A A B B gives one run with (A A B) and leaves one B waiting for the next A: nothing is lost and nothing used twice.
"""

from __future__ import annotations

from app.sdk import DAG, Asset, task

left = Asset("left")
right = Asset("right")

with DAG("two_assets", schedule=left & right, tags=["example"], description="Waits for an event of each of two assets"):

    @task
    def join(triggering_asset_events=None):
        parts = {asset.name: [event.extra for event in events] for asset, events in triggering_asset_events.items()}
        print(f"joined {parts}")
        return {name: len(extras) for name, extras in parts.items()}

    join()
