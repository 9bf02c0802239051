"""An event posted to the REST API starts a run; its task makes an event of another asset, which starts the next.

    tidegate assets emit upload --extra '{"file": "a.csv"}'

or, from any machine, with a token of ``POST /auth/token``:

    curl localhost:8080/api/v2/assets/events -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
         -H 'Idempotency-Key: upload-42' -d '{"name": "upload", "extra": {"file": "a.csv"}}'
"""

from __future__ import annotations

from app.sdk import DAG, Asset, Metadata, task

upload = Asset("upload")
report = Asset("report")

with DAG("rest_event", schedule=upload, tags=["example"], description="Started by an event posted to the API"):

    @task(outlets=[report])
    def process(triggering_asset_events=None):
        (event,) = triggering_asset_events[upload]
        print(f"processing {event.extra['file']}")
        yield Metadata(report, extra={"made_from": event.extra["file"]})

    process()

with DAG("after_report", schedule=report, tags=["example"], description="Started by the event a task made"):

    @task
    def publish(triggering_asset_events=None):
        (event,) = triggering_asset_events[report]
        print(f"publishing the report on {event.extra['made_from']}")

    publish()
