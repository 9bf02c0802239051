"""One run per message of an SQS queue.

``make demo`` starts a local SQS-compatible server and feeds it. To use a real queue, give its address and configure
credentials the usual way (environment, profile, role), or by ``connection_id``:

    DEMO_SQS_QUEUE=https://sqs.eu-central-1.amazonaws.com/123456789012/orders make run

Without an address the DAG is created paused, and a paused DAG's watchers do not run.
"""

from __future__ import annotations

import os

from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger, task

queue = os.environ.get("DEMO_SQS_QUEUE", "sqs://orders")
orders = Asset(
    "sqs-orders",
    watchers=[
        AssetWatcher("orders", MessageQueueTrigger(queue=queue, region_name=os.environ.get("AWS_REGION", "us-east-1")))
    ],
)

with DAG(
    "sqs_orders",
    schedule=orders,
    is_paused_upon_creation="DEMO_SQS_QUEUE" not in os.environ,
    tags=["example"],
    description="One run per message of an SQS queue",
):

    @task(retries=2)
    def handle(triggering_asset_events=None):
        (event,) = triggering_asset_events[orders]
        message = event.extra["payload"]
        print(f"order {message['value']} (message {message['message_id']})")
        return message["value"]

    handle()
