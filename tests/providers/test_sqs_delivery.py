"""What SQS demands beyond the contract of every source."""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import pairwise

import pytest

from providers.sqs.errors import CredentialsRefused, QueueMissing
from providers.sqs.trigger import SqsTrigger
from tests.contracts.harness import Break
from tests.contracts.harness_sqs import CONNECTION, SqsHarness
from tests.contracts.ledger import Driver, Ledger, driving, eventually
from tests.services.moto import ACCOUNT, REGION
from tests.services.proxy import Forward, HttpRequest, HttpResponse
from watchers.triggers import BaseEventTrigger

pytestmark = [pytest.mark.sqs, pytest.mark.timeout(120)]


def operation(request: HttpRequest) -> str:
    return request.headers.get("x-amz-target", "").rpartition(".")[2]


def count(sqs: SqsHarness, name: str) -> int:
    return sum(operation(request) == name for request in sqs.proxy.requests)


def refusal(status: int, code: str) -> HttpResponse:
    return HttpResponse(
        status=status,
        headers={"content-type": "application/x-amz-json-1.0"},
        body=json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": "no"}).encode(),
    )


async def test_a_batch_of_ten_is_ten_events_in_few_yields(sqs: SqsHarness, ledger: Ledger) -> None:
    await sqs.send([json.dumps(number).encode() for number in range(10)])
    async with driving(sqs.new_trigger(receivers=1), ledger):
        events = await ledger.wait_for_events(10)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert sorted(event.payload["value"] for event in events) == list(range(10))
    assert [len(batch) for batch in ledger.batches] == [10]
    assert count(sqs, "DeleteMessageBatch") == 1


async def test_the_payload_carries_attributes_and_binary_ones_flagged(sqs: SqsHarness, ledger: Ledger) -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number", "StringValue": "12345678901234567890123456789"},
        "bytes": {"DataType": "Binary", "BinaryValue": base64.b64encode(b"\xff\x00").decode()},
    }
    [identifier] = await sqs.administration.send(sqs.url, ['{"a": 1}'], MessageAttributes=attributes)
    async with driving(sqs.new_trigger(), ledger):
        [event] = await ledger.wait_for_events(1)
    payload = event.payload
    assert (payload["value"], payload["encoding"]) == ({"a": 1}, "json")
    assert event.key == payload["message_id"] == identifier
    assert event.source == payload["queue"]
    assert payload["attributes"]["ApproximateReceiveCount"] == "1"
    assert payload["message_attributes"] == {
        "text": {"type": "String", "value": "é", "encoding": "text"},
        "number": {"type": "Number", "value": "12345678901234567890123456789", "encoding": "text"},
        "bytes": {"type": "Binary", "value": "/wA=", "encoding": "base64"},
    }


async def test_a_deletion_that_fails_for_one_entry_is_repeated(sqs: SqsHarness, ledger: Ledger) -> None:
    """One of ten entries is reported as failed, twice."""
    victims: list[str] = []

    async def fail_one(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        if operation(request) != "DeleteMessageBatch" or len(victims) == 2:
            return None
        asked = json.loads(request.body)
        victim = asked["Entries"].pop(0)
        victims.append(victim["ReceiptHandle"])
        response = HttpResponse(headers={"content-type": "application/x-amz-json-1.0"}, body=b'{"Successful": []}')
        if asked["Entries"]:
            response = await forward(body=json.dumps(asked).encode())
        told = json.loads(response.body)
        told["Failed"] = [{"Id": victim["Id"], "Code": "InternalError", "SenderFault": False, "Message": "try again"}]
        return HttpResponse(headers=response.headers, body=json.dumps(told).encode())

    sqs.proxy.rule = fail_one
    await sqs.send([json.dumps(number).encode() for number in range(10)])
    async with driving(sqs.new_trigger(receivers=1), ledger) as driver:
        await ledger.wait_for_events(10)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
        await eventually(lambda: driver.status.consecutive == 0)
    assert sorted(event.payload["value"] for event in ledger.events) == list(range(10))
    assert ledger.duplicates == []
    assert len(set(victims)) == 1
    assert count(sqs, "DeleteMessageBatch") == 3
    assert len(driver.status.errors) == 2


async def test_a_store_slower_than_the_visibility_time_gets_one_delivery(sqs: SqsHarness, ledger: Ledger) -> None:
    """Visibility is 2 s, the store takes several times that: a heartbeat comes before each of them is over."""
    began = asyncio.get_running_loop().time()
    ledger.close_gate()
    await sqs.send([b'"slow"'])
    async with driving(sqs.new_trigger(visibility_timeout=2), ledger):
        await ledger.wait_for_offer(1)
        await eventually(lambda: count(sqs, "ChangeMessageVisibilityBatch") >= 6)
        assert (await sqs.administration.counts(sqs.url)).total == 1
        assert asyncio.get_running_loop().time() - began > 4
        ledger.open_gate()
        [event] = await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert event.payload["attributes"]["ApproximateReceiveCount"] == "1"
    assert len(ledger.offered) == 1


async def test_a_message_handed_out_again_while_in_hand_is_offered_once(sqs: SqsHarness, ledger: Ledger) -> None:
    """The heartbeat fails, so the visibility time runs out under a slow store."""

    async def no_heartbeat(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        heartbeat = operation(request) == "ChangeMessageVisibilityBatch"
        return refusal(500, "InternalError") if heartbeat else None

    sqs.proxy.rule = no_heartbeat
    ledger.close_gate()
    await sqs.send([b'"again"'])
    async with driving(sqs.new_trigger(visibility_timeout=1), ledger):
        await ledger.wait_for_offer(1)
        await eventually(lambda: count(sqs, "ChangeMessageVisibilityBatch") >= 12)
        ledger.open_gate()
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert len(ledger.offered) == 1


@pytest.mark.parametrize(("denials", "failures"), [(2, 2), pytest.param(6, 5, marks=pytest.mark.slow)])
async def test_credentials_expire_the_service_fails_and_refuses_then_works(
    sqs: SqsHarness, ledger: Ledger, denials: int, failures: int
) -> None:
    """Some 403, some 500, refused connections, then normal."""
    answers = [refusal(403, "ExpiredTokenException")] * denials + [refusal(500, "InternalError")] * failures

    async def refuse(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        return answers.pop(0) if answers else None

    sqs.proxy.rule = refuse
    async with driving(sqs.new_trigger(), ledger) as driver:
        await eventually(lambda: any(isinstance(error, CredentialsRefused) for error in driver.status.errors))
        await eventually(lambda: not answers, within=60)
        await eventually(lambda: driver.status.consecutive == 0)
        times = list(driver.status.failure_times)
        await sqs.break_connection(Break.REFUSE)
        await eventually(lambda: driver.status.consecutive >= 3)
        await sqs.heal()
        await sqs.send([b'"after"'])
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    # The first two answers may go to both receivers at once: one failure.
    assert len(times) in {denials + failures, denials + failures - 1}
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[-1] > gaps[0]
    assert max(gaps) < 20
    assert driver.status.recoveries >= 2


async def test_rotated_credentials_are_read_anew(
    sqs: SqsHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"TIDEGATE_CONN_{CONNECTION.upper()}"

    async def demand_new_key(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        return None if "Credential=newkey/" in request.headers["authorization"] else refusal(403, "ExpiredToken")

    async with driving(sqs.new_trigger(), ledger) as driver:
        await sqs.send([b"1"])
        await ledger.wait_for_events(1)
        sqs.proxy.rule = demand_new_key
        await eventually(lambda: driver.status.consecutive >= 1)
        monkeypatch.setenv(variable, "aws://newkey:hunter2@")
        await sqs.send([b"2"])
        await ledger.wait_for_events(2)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert ledger.duplicates == []


async def test_a_queue_that_does_not_exist_yet_is_waited_for(sqs: SqsHarness, ledger: Ledger) -> None:
    name = f"{sqs.queue_name}-later"
    trigger = SqsTrigger(
        f"sqs://{name}", endpoint_url=sqs.proxy.url, connection_id=CONNECTION, region_name=REGION, wait_time_seconds=1
    )
    async with driving(trigger, ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 2)
        assert all(isinstance(error, QueueMissing) for error in driver.status.errors)
        url = await sqs.administration.create_queue(name)
        await sqs.administration.send(url, ['"first"'])
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(url, total=0)
        assert driver.status.consecutive == 0
    await sqs.administration.delete_queue(url)


async def test_name_and_url_of_a_queue_of_the_service_work_at_any_endpoint(sqs: SqsHarness, ledger: Ledger) -> None:
    url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{sqs.queue_name}"
    await sqs.send([b"1"])
    trigger = SqsTrigger(url, endpoint_url=sqs.proxy.url, connection_id=CONNECTION, wait_time_seconds=1)
    async with driving(trigger, ledger):
        [event] = await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert event.source == url == trigger.default_source()


async def test_endpoint_and_credentials_from_the_environment(
    sqs: SqsHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", sqs.proxy.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    await sqs.send([b"1"])
    async with driving(SqsTrigger(f"sqs://{sqs.queue_name}", wait_time_seconds=1), ledger):
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)


async def test_endpoint_and_region_from_the_connection(
    sqs: SqsHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"region_name": REGION, "endpoint_url": sqs.proxy.url}
    described = {"conn_type": "aws", "login": "key", "password": "hunter2", "extra": extra}
    monkeypatch.setenv("TIDEGATE_CONN_WHOLE", json.dumps(described))
    await sqs.send([b"1"])
    async with driving(SqsTrigger(sqs.queue_name, connection_id="whole", wait_time_seconds=1), ledger):
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)


async def test_a_connection_that_is_not_configured_is_shown_and_waited_for(
    sqs: SqsHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqs.send([b"1"])
    async with driving(sqs.new_trigger(connection_id="absent"), ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 1)
        assert "absent" in str(driver.status.errors[0])
        monkeypatch.setenv("TIDEGATE_CONN_ABSENT", "aws://key:hunter2@")
        await ledger.wait_for_events(1)


async def test_what_is_in_hand_at_a_clean_stop_is_given_back_at_once(sqs: SqsHarness, ledger: Ledger) -> None:
    ledger.close_gate()
    await sqs.send([json.dumps(number).encode() for number in range(5)])
    async with driving(sqs.new_trigger(visibility_timeout=600, receivers=1), ledger):
        await ledger.wait_for_offer(5)
        counts = await sqs.administration.counts(sqs.url)
        assert (counts.visible, counts.in_flight) == (0, 5)
    counts = await sqs.administration.counts(sqs.url)
    assert (counts.visible, counts.in_flight) == (5, 0)


async def test_a_slow_store_leaves_the_messages_in_the_queue(sqs: SqsHarness, ledger: Ledger) -> None:
    """Back-pressure: what is in hand is bounded by two batches a receiver."""
    ledger.close_gate()
    await sqs.send([json.dumps(number).encode() for number in range(100)])
    async with driving(sqs.new_trigger(receivers=2), ledger):
        await ledger.wait_for_offer(1)
        polls = count(sqs, "ReceiveMessage")
        await asyncio.sleep(3)
        assert (await sqs.administration.counts(sqs.url)).in_flight <= 40
        assert count(sqs, "ReceiveMessage") - polls <= 4
        ledger.open_gate()
        await ledger.wait_for_events(100)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert ledger.duplicates == []


async def test_equal_settings_share_one_client(sqs: SqsHarness, ledger: Ledger) -> None:
    from providers.sqs import client

    drivers = [Driver(trigger, ledger) for trigger in _several(sqs)]
    for driver in drivers:
        driver.start()
    await sqs.send([b"1"])
    await ledger.wait_for_events(1)
    [shared] = client._shared[asyncio.get_running_loop()].values()
    assert shared.users == len(drivers)
    for driver in drivers:
        await driver.stop()
    assert client._shared[asyncio.get_running_loop()] == {}


def _several(sqs: SqsHarness) -> list[BaseEventTrigger]:
    return [sqs.new_trigger(max_messages=number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("garbage", "kind"),
    [
        (b"<html>proxy</html>", "text/html"),
        (b"{", "text/html"),
        (b"[]", "application/json"),
        (b"7", "application/json"),
        (b'{"Messages": 7}', "application/json"),
        (b'{"Messages": [{}]}', "application/json"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_an_outage(
    sqs: SqsHarness, ledger: Ledger, garbage: bytes, kind: str
) -> None:
    """What a proxy or a captive portal puts in the service's place."""

    async def talk_nonsense(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        receives = operation(request) == "ReceiveMessage"
        return HttpResponse(headers={"content-type": kind}, body=garbage) if receives else None

    sqs.proxy.rule = talk_nonsense
    async with driving(sqs.new_trigger(), ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 2)
        sqs.proxy.rule = None
        await sqs.send([b"1"])
        await ledger.wait_for_events(1)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert driver.status.consecutive == 0


async def test_a_server_that_does_not_wait_is_not_asked_without_pause(sqs: SqsHarness, ledger: Ledger) -> None:
    async with driving(sqs.new_trigger(wait_time_seconds=0, receivers=1), ledger):
        await eventually(lambda: count(sqs, "ReceiveMessage") >= 1)
        began, polls = asyncio.get_running_loop().time(), count(sqs, "ReceiveMessage")
        await eventually(lambda: count(sqs, "ReceiveMessage") >= polls + 3)
        assert asyncio.get_running_loop().time() - began > 1
        await sqs.send([b"1"])
        await ledger.wait_for_events(1)


async def test_a_mistake_of_ours_ends_the_trigger_instead_of_silencing_it(
    sqs: SqsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("providers.sqs.intake.Intake._take", mistake)
    await sqs.send([b"1"])
    generator = sqs.new_trigger().run()
    with pytest.raises(ZeroDivisionError):
        await anext(generator)


async def test_a_message_lost_before_it_was_offered_comes_again_in_order(
    ordered_sqs: SqsHarness, ledger: Ledger
) -> None:
    """The receipt of the first of a group becomes void while it waits: the group's others must not overtake it."""
    sqs, voided = ordered_sqs, list[str]()

    async def void_once(request: HttpRequest, forward: Forward) -> HttpResponse | None:
        asked = json.loads(request.body)
        if voided or operation(request) != "ChangeMessageVisibilityBatch" or len(asked["Entries"]) < 3:
            return None
        voided.append(asked["Entries"][1]["Id"])
        told = json.loads((await forward()).body)
        kept = [entry for entry in told["Successful"] if entry["Id"] not in voided]
        failed = [{"Id": voided[0], "Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": "void"}]
        return HttpResponse(body=json.dumps({"Successful": kept, "Failed": failed}).encode())

    sqs.proxy.rule = void_once
    ledger.close_gate()
    async with driving(sqs.new_trigger(receivers=1), ledger):
        await sqs.send([b'"held"'], lanes=["one"])
        await ledger.wait_for_offer(1)
        await sqs.send([b"1", b"2"], lanes=["two", "two"])
        await eventually(lambda: bool(voided))
        ledger.open_gate()
        await ledger.wait_for_events(3)
        await sqs.administration.wait_for_counts(sqs.url, total=0)
    assert [event.payload["value"] for event in ledger.offered] == ["held", 1, 2]
