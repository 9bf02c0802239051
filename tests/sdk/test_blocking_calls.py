"""Which calls in triggers are said to block, and which are not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.specs import LoadResult
from app.sdk.blocking_calls import Unreadable, check_source

HEAD = """
import asyncio, os, subprocess, sqlite3, threading, time
import concurrent.futures
import requests as rq
import boto3
import kafka
import redis
import redis.asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep as nap
from urllib.request import urlopen
from watchers.triggers import BaseEventTrigger, TriggerEvent

"""


def codes(body: str, *, around: str = "", members: str = "") -> list[str]:
    """The codes found where ``body`` is what ``run`` does before its yield."""
    run = "    async def run(self):\n" + textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    inside = textwrap.indent(textwrap.dedent(members).strip(), " " * 4)
    text = f"{HEAD}\n{textwrap.dedent(around)}\nclass Feed(BaseEventTrigger):\n{inside}\n\n{run}\n        yield 1\n"
    return [finding.code.value for finding in check_source(text.encode())]


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("TG101", "time.sleep(1)"),
        ("TG101", "nap(1)"),
        ("TG101", "wait = time.sleep\nwait(1)"),
        ("TG102", "rq.get('http://x')"),
        ("TG102", "with rq.Session() as session:\n    session.post('http://x')"),
        ("TG102", "text = urlopen('http://x')"),
        ("TG102", "await asyncio.wait_for(rq.get('http://x'), 1)"),
        ("TG103", "client = boto3.client('sqs')"),
        ("TG103", "connection = sqlite3.connect('x')"),
        ("TG103", "kafka.KafkaConsumer('topic')"),
        ("TG104", "import socket\nsocket.create_connection(('x', 1))"),
        ("TG105", "open('x')"),
        ("TG105", "Path('x').read_text()"),
        ("TG105", "(Path('x') / 'y').exists()"),
        ("TG105", "unknown.read_bytes()"),
        ("TG105", "os.listdir('.')"),
        ("TG106", "subprocess.run(['true'])"),
        ("TG106", "os.system('true')"),
        ("TG107", "input()"),
        ("TG108", "ThreadPoolExecutor().submit(f).result()"),
        ("TG108", "future.result(5)"),
        ("TG108", "threading.Event().wait()"),
        ("TG108", "asyncio.run(f())"),
        ("TG109", "while True:\n    pass"),
        ("TG109", "while True:\n    for each in self.things:\n        break"),
        ("TG109", "while not self.ready:\n    continue"),
        ("TG109", "end = time.monotonic() + 5\nwhile time.monotonic() < end:\n    self.work()"),
        ("TG101", "asyncio.get_running_loop().call_later(1, lambda: time.sleep(1))"),
        ("TG101", "def inner():\n    nap(1)\ninner()"),
    ],
)
def test_what_blocks_is_found(code: str, body: str) -> None:
    assert codes(body) == [code]


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.sleep(1)",
        "await asyncio.to_thread(time.sleep, 1)",
        "await asyncio.to_thread(lambda: time.sleep(1))",
        "await asyncio.get_running_loop().run_in_executor(None, lambda: rq.get('x'))",
        "await asyncio.to_thread(Path('x').read_text)",
        "path = Path('x')\nname = path.with_suffix('.y').name",
        "client = redis.asyncio.Redis()\nawait client.get('x')",
        "client = await asyncio.to_thread(redis.Redis)\nawait asyncio.to_thread(client.get, 'x')",
        "done, _ = await asyncio.wait(tasks)\nfirst = done.pop().result()",
        "text = await upath.read_text()",
        "while True:\n    yield 1",
        "while True:\n    await asyncio.sleep(1)",
        "while True:\n    async for each in source:\n        pass",
        "while True:\n    found = text.find(',')\n    if found < 0:\n        break",
        "while True:\n    all = [x async for x in source]",
        "def inner():\n    nap(1)\nawait asyncio.to_thread(inner)",
        "def open(x):\n    return x\nopen('x')",
        "from aiofiles import open\nasync with open('x') as file:\n    pass",
        "time.sleep(1)  # tidegate: allow-blocking",
        "subprocess.run(\n    ['true'],  # tidegate: allow-blocking\n)",
        "while True:  # tidegate: allow-blocking\n    pass",
        "text = 'time.sleep(1)'",
    ],
)
def test_what_does_not_block_is_not(body: str) -> None:
    assert codes(body) == []


def test_calls_are_followed_through_the_file() -> None:
    around = """
        def fetch():
            return rq.get("http://x")

        class Helper:
            def __init__(self):
                self.connection = sqlite3.connect("x")
            def rows(self):
                return self.connection.execute("select 1").fetchall()

        class Base(BaseEventTrigger):
            async def cleanup(self):
                time.sleep(1)
            def offloaded(self):
                time.sleep(1)
    """
    assert codes("fetch()", around=around) == ["TG102", "TG101"]  # cleanup of a trigger of its own
    found = codes("Helper().rows()", around=around)
    assert sorted(found) == ["TG101", "TG103", "TG103"]
    assert codes("await asyncio.to_thread(fetch)", around="def fetch(): time.sleep(1)") == []


def test_clients_kept_in_attributes_are_known() -> None:
    members = """
        def __init__(self, folder: Path, cache: "redis.Redis | None" = None):
            self.folder = folder
            self.cache = cache
            self.client = boto3.client("sqs")

        def poll(self):
            return self.client.receive_message()
    """
    assert codes("self.poll()", members=members) == ["TG103"]
    assert codes("self.cache.get('x')", members=members) == ["TG103"]
    assert codes("for path in sorted(self.folder.glob('*')):\n    path.unlink()", members=members) == ["TG105"] * 2
    assert codes("await asyncio.to_thread(self.poll)", members=members) == []


def test_properties_and_inherited_methods_are_followed() -> None:
    around = """
        class Base(BaseEventTrigger):
            @property
            def size(self):
                return os.stat("x").st_size
            async def poll(self):
                time.sleep(1)

        class Child(Base):
            async def run(self):
                self.size
                await self.poll()
                yield 1
    """
    assert sorted(codes("pass", around=around)) == ["TG101", "TG105"]


def test_only_what_runs_in_triggers_counts() -> None:
    text = HEAD + textwrap.dedent("""
        def task():
            time.sleep(1)

        class Operator:
            def run(self):
                time.sleep(1)

        time.sleep(0)
    """)
    assert check_source(text.encode()) == []


def test_a_finding_says_where_and_what_instead() -> None:
    text = "import time\nclass T(BaseTrigger):\n    async def run(self):\n        yield time.sleep(1)\n"
    (found,) = check_source(text.encode())
    assert (found.line, found.column, found.trigger) == (4, 15, "T")
    assert found.message == "time.sleep() blocks the event loop in T.run(): use `await asyncio.sleep(…)`"


@pytest.mark.parametrize(
    "source", [b"class Trigger(:\n", b"Trigger = '\xff'\n", b"Trigger\0", b"Trigger = " + b"-" * 9000 + b"1"]
)
def test_a_text_that_cannot_be_read_is_an_error(source: bytes) -> None:
    with pytest.raises(Unreadable):
        check_source(source)


def test_the_loader_says_it_of_every_module(
    write: Callable[[str, str], Path], parse: Callable[[str], LoadResult]
) -> None:
    write(
        "feeds.py",
        "import time\nclass FeedTrigger:\n    async def run(self):\n        time.sleep(1)\n        yield 1\n",
    )
    result = parse("""
        import feeds
        from app.sdk import DAG
        d = DAG("d")
    """)
    (said,) = result.blocking_calls
    assert said.startswith("feeds.py:4: TG101 time.sleep() blocks")
    assert result.warnings == ()
