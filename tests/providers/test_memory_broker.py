"""The memory broker as a process: protocol, redelivery, commands."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from providers.memory import MemoryProvider, MemoryTrigger
from providers.memory.broker import SocketTaken, listen
from providers.memory.client import MemoryClient, socket_path
from tests.contracts.ledger import Ledger, driving, eventually
from tests.services.memory import REPOSITORY, MemoryBroker
from watchers.errors import SourceMisconfigured, SourceUnavailable, WatcherDeclarationError
from watchers.message_queue import MessageQueueTrigger
from watchers.registry import find_provider


@pytest.fixture
def queue() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


async def test_a_waiting_receive_is_woken_by_a_publish(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as receiver, MemoryClient(memory_broker.path) as sender:
        waiting = asyncio.create_task(receiver.receive(queue, 10, wait=30, visibility=30))
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        sent = loop.time()
        [identifier] = await sender.publish(queue, [b"\x00\xff"])
        [message] = await waiting
        assert loop.time() - sent < 5
        assert (message.id, message.body, message.attempt) == (identifier, b"\x00\xff", 1)


async def test_a_message_comes_again_when_its_holder_goes(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as sender:
        await sender.publish(queue, [b"1"])
        async with MemoryClient(memory_broker.path) as first:
            [message] = await first.receive(queue, 1, wait=5, visibility=600)
        [again] = await sender.receive(queue, 1, wait=30, visibility=600)
    assert (again.id, again.attempt) == (message.id, 2)


async def test_a_message_comes_again_after_its_visibility_time(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as first, MemoryClient(memory_broker.path) as second:
        await first.publish(queue, [b"1"])
        [message] = await first.receive(queue, 1, wait=5, visibility=0.2)
        [again] = await second.receive(queue, 1, wait=30, visibility=600)
        assert again.id == message.id
        await first.acknowledge(queue, [message.id])
        counts = await first.statistics(queue)
    assert (counts.visible, counts.in_flight) == (0, 0)


async def test_a_message_that_is_extended_or_released(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as first, MemoryClient(memory_broker.path) as second:
        await first.publish(queue, [b"1"])
        [message] = await first.receive(queue, 1, wait=5, visibility=0.3)
        await first.extend(queue, [message.id], visibility=600)
        assert await second.receive(queue, 1, wait=0.5, visibility=600) == []
        await first.release(queue, [message.id])
        assert await second.receive(queue, 1, wait=30, visibility=600)


async def test_a_cancelled_receive_gives_back_what_was_under_way(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as first, MemoryClient(memory_broker.path) as second:
        waiting = asyncio.create_task(first.receive(queue, 1, wait=30, visibility=600))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await second.publish(queue, [b"1"])
        assert await second.receive(queue, 1, wait=30, visibility=600)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!II", 2, 0) + b"[]",
        struct.pack("!II", 4, 0) + b"nope",
        struct.pack("!II", 2**31, 0),
        b"\x00",
    ],
)
async def test_garbage_ends_only_its_own_connection(memory_broker: MemoryBroker, queue: str, garbage: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(memory_broker.path)
    writer.write(garbage)
    writer.write_eof()
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    async with MemoryClient(memory_broker.path) as client:
        assert await client.publish(queue, [b"1"])


async def test_a_request_that_makes_no_sense_is_refused_with_a_reason(memory_broker: MemoryBroker, queue: str) -> None:
    async with MemoryClient(memory_broker.path) as client:
        with pytest.raises(SourceMisconfigured, match="ValueError"):
            await client.receive(queue, 1, wait=1, visibility="soon")  # type: ignore[arg-type]
        assert await client.publish(queue, [b"1"])


async def test_no_broker(tmp_path: Path) -> None:
    async with MemoryClient(tmp_path / "absent") as client:
        with pytest.raises(SourceUnavailable, match="absent"):
            await client.statistics("q")


def test_no_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_MEMORY_BROKER", raising=False)
    with pytest.raises(SourceMisconfigured, match="TIDEGATE_MEMORY_BROKER"):
        socket_path()


async def test_a_second_broker_on_a_socket_is_refused(memory_broker: MemoryBroker) -> None:
    with pytest.raises(SocketTaken):
        await listen(memory_broker.path)


async def test_the_socket_of_a_dead_broker_is_replaced(memory_broker: MemoryBroker) -> None:
    path = memory_broker.folder / "dead.sock"
    (await asyncio.start_unix_server(lambda *_: None, path)).close()
    assert path.is_socket()
    server = await listen(path)
    assert path.stat().st_mode & 0o777 == 0o600
    server.close()
    path.unlink()


async def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(OSError, match=r".") as refused:
        await listen(path)
    assert not isinstance(refused.value, SocketTaken)
    assert path.read_text() == "data"


async def test_the_broker_restarts_under_a_trigger(ledger: Ledger, queue: str) -> None:
    with MemoryBroker() as broker:
        async with driving(MemoryTrigger(queue, socket=str(broker.path)), ledger) as driver:
            await asyncio.to_thread(broker.stop)
            await eventually(lambda: driver.status.consecutive >= 1)
            await asyncio.to_thread(broker.start)
            async with MemoryClient(broker.path) as client:
                await client.publish(queue, [b"1"])
            await ledger.wait_for_events(1)
            assert driver.status.consecutive == 0


def test_publish_command(memory_broker: MemoryBroker, queue: str) -> None:
    environment = {**os.environ, "TIDEGATE_MEMORY_BROKER": str(memory_broker.path)}
    command = [sys.executable, "-W", "error", "-m", "providers.memory.publish"]
    done = subprocess.run(
        [*command, f"memory://{queue}", '{"a": 1}', "text"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    piped = subprocess.run(
        [*command, queue, "--lane", "x"],
        cwd=REPOSITORY,
        env=environment,
        input=b"\xff",
        capture_output=True,
        check=False,
    )
    assert piped.returncode == 0, piped.stderr

    async def bodies() -> dict[str, bytes]:
        async with MemoryClient(memory_broker.path) as client:
            return {message.id: message.body for message in await client.receive(queue, 9, wait=5, visibility=60)}

    assert asyncio.run(bodies()) == dict(
        zip((done.stdout + piped.stdout).decode().split(), [b'{"a": 1}', b"text", b"\xff"], strict=True)
    )


def test_publish_without_a_broker_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "providers.memory.publish", "q", "x", "--socket", str(tmp_path / "absent")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "absent" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_provider_is_found_and_makes_the_trigger() -> None:
    assert isinstance(find_provider(queue="memory://orders"), MemoryProvider)
    path, arguments = MessageQueueTrigger(queue="memory://orders", max_messages=5).serialize()
    assert path == "providers.memory.trigger.MemoryTrigger"
    assert (arguments["queue_name"], arguments["max_messages"]) == ("orders", 5)
    assert MessageQueueTrigger(scheme="memory", queue_name="orders").default_source() == "memory:orders"


@pytest.mark.parametrize("queue", ["memory://", "memory://a/b", "memory://u:hunter2@a"])
def test_addresses_that_say_nothing_or_too_much_are_refused(queue: str) -> None:
    with pytest.raises(WatcherDeclarationError) as refused:
        MessageQueueTrigger(queue=queue)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("options", [{"max_messages": 0}, {"visibility_timeout": 0}, {"wait_seconds": -1}])
def test_options_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(WatcherDeclarationError):
        MemoryTrigger("orders", **options)  # type: ignore[arg-type]


def test_arguments_survive_json() -> None:
    path, arguments = MemoryTrigger("orders", socket="/tmp/x").serialize()
    assert json.loads(json.dumps([path, arguments])) == [path, arguments]
