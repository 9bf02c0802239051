"""One run per record of a Kafka topic; orders of at least 100 make events of a second asset as well.

``make demo`` starts a Kafka-compatible broker and feeds it. To use a real cluster:

    DEMO_KAFKA=kafka://broker-1:9092,broker-2:9092/orders make run

Both assets share one poller: equal triggers are one, the filter ``when`` is applied as the record arrives.
"""

from __future__ import annotations

import os

from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger, task

trigger = MessageQueueTrigger(queue=os.environ.get("DEMO_KAFKA", "kafka://127.0.0.1:9092/orders"))
orders = Asset("kafka-orders", watchers=[AssetWatcher("all", trigger)])
large_orders = Asset("kafka-large-orders", watchers=[AssetWatcher("large", trigger, when="value.amount >= `100`")])
paused = "DEMO_KAFKA" not in os.environ

with DAG("kafka_orders", schedule=orders, max_active_runs=64, is_paused_upon_creation=paused, tags=["example"]):

    @task
    def handle(triggering_asset_events=None):
        (event,) = triggering_asset_events[orders]
        record = event.extra["payload"]
        print(f"{record['topic']}/{record['partition']}/{record['offset']}: {record['value']}")

    handle()

with DAG("kafka_large_orders", schedule=large_orders, is_paused_upon_creation=paused, tags=["example"]):

    @task
    def review(triggering_asset_events=None):
        (event,) = triggering_asset_events[large_orders]
        print(f"please review: {event.extra['payload']['value']}")

    review()
