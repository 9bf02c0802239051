"""Drop a file into ``examples/inbox`` and a run prints its name.

    cp README.md examples/inbox/

The file stays where it is. The same file is reported once; touch or change it and it is reported again.
"""

from __future__ import annotations

from pathlib import Path

from app.sdk import DAG, Asset, AssetWatcher, FileEventTrigger, task

INBOX = Path(__file__).resolve().parent / "inbox"

inbox = Asset("inbox", watchers=[AssetWatcher("new-file", FileEventTrigger(str(INBOX / "*")))])

with DAG(
    "file_drop", schedule=inbox, tags=["example"], description="Prints the name of each file dropped into a folder"
):

    @task
    def print_name(triggering_asset_events=None):
        (event,) = triggering_asset_events[inbox]
        found = event.extra["payload"]
        print(f"received {found['name']} ({found['size']} bytes)")
        return found["name"]

    print_name()
