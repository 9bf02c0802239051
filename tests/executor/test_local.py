"""The local executor with real processes and a real database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pytest

from app.domain.orders import AttemptOrder
from app.kernel.settings import Settings
from app.processes.executor import local, messages
from app.processes.executor.parents import ParentGone, WarmParent, _Slot
from app.services import demand, tasks
from app.store.database import Database
from app.store.errors import DatabaseUnavailable
from tests.executor.world import world
from tests.factories import store_events
from tests.waiting import eventually

PIPELINE = """
import os, subprocess, sys, time
from datetime import timedelta
from pathlib import Path
from app.sdk import DAG, task, BashOperator, SkipTask, FailTask

with DAG("works"):
    @task
    def first():
        print("hello from", os.getpid())
        os.write(1, b"raw \\xff line\\n")
        return {"n": 1, "t": (1, 2)}
    @task
    def second(value):
        print("got", value)
        assert value["t"] == (1, 2), value
        return value["n"] + 1
    second(first())

with DAG("retries"):
    @task(retries=2, retry_delay=timedelta(0))
    def flaky(ti=None):
        print("try", ti.try_number)
        if ti.try_number < 3:
            raise ValueError("not yet")
    flaky()

with DAG("fails_for_good"):
    @task(retries=5)
    def never():
        raise FailTask("no use")
    never()

with DAG("skips"):
    @task
    def skip():
        raise SkipTask("not today")
    @task
    def after():
        pass
    skip() >> after()

with DAG("exits"):
    @task(retries=1, retry_delay=timedelta(0))
    def gone():
        os._exit(7)
    gone()

with DAG("hangs"):
    @task(execution_timeout=timedelta(seconds=1))
    def hang():
        time.sleep(600)
    hang()

with DAG("ignores_signals"):
    @task(execution_timeout=timedelta(seconds=1))
    def deaf():
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        while True:
            try:
                time.sleep(600)
            except BaseException:
                pass
    deaf()

with DAG("waits"):
    @task(retries=1, retry_delay=timedelta(0))
    def wait(ti=None):
        path = Path(os.environ["WAIT_FOLDER"]) / f"pid-{ti.try_number}"
        if ti.try_number == 1:
            left = subprocess.Popen(["sleep", "3600"])
            path.with_name("left").write_text(str(left.pid))
        path.write_text(str(os.getpid()))
        if ti.try_number == 1:
            time.sleep(600)
    wait()

with DAG("environment"):
    @task
    def look():
        return sorted(name for name in os.environ if "DATABASE" in name or name.startswith("PG"))
    look()

with DAG("isolated"):
    state = []
    @task
    def one():
        state.append(1)
        return len(state)
    @task
    def two():
        state.append(1)
        return len(state)
    one() >> two()

with DAG("leaves_a_process"):
    @task
    def leave():
        return subprocess.Popen(["sleep", "3600"]).pid
    leave()

with DAG("secrets"):
    @task
    def tell(conn=None):
        print("printed", conn.mydb.password)
        raise ValueError("bad password " + conn.mydb.password)
    tell()

with DAG("bash"):
    BashOperator(task_id="echo", bash_command="echo from bash; exit 0")
"""


async def test_values_pass_between_tasks_and_everything_said_is_in_the_log(
    database_url: str, executor_settings: Settings
) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("works")
        assert run["state"] == "success", await there.rows("SELECT task_id, state, note FROM task_instance")
        lines = there.log("works", run["run_id"], "first")
        said = [line["event"] for line in lines]
        assert any(event.startswith("hello from") for event in said)
        assert any(event.startswith("raw ") for event in said)
        hello = next(line for line in lines if line["event"].startswith("hello from"))
        assert {"timestamp", "level", "logger"} <= hello.keys()
        values = await there.rows("SELECT task_id, value::text FROM xcom WHERE key = 'return_value' ORDER BY 1")
        assert [row["task_id"] for row in values] == ["first", "second"]


async def test_a_failing_task_is_tried_again_and_again(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("retries")
        assert run["state"] == "success"
        assert (await there.task(run["run_id"], "flaky"))["try_number"] == 3
        assert any("not yet" in line["event"] for line in there.log("retries", run["run_id"], "flaky", attempt=2))


@pytest.mark.parametrize(
    ("dag_id", "run_state", "task_states"),
    [
        ("fails_for_good", "failed", {"never": "failed"}),
        ("skips", "success", {"skip": "skipped", "after": "skipped"}),
        ("bash", "success", {"echo": "success"}),
        ("environment", "success", {"look": "success"}),
    ],
)
async def test_each_outcome_is_recorded(
    database_url: str,
    executor_settings: Settings,
    dag_id: str,
    run_state: str,
    task_states: dict[str, str],
) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end(dag_id)
        rows = await there.rows("SELECT task_id, state FROM task_instance WHERE run_id = $1", run["run_id"])
        assert (run["state"], {row["task_id"]: row["state"] for row in rows}) == (run_state, task_states)
        if dag_id == "environment":
            assert (await there.rows("SELECT value::text AS text FROM xcom"))[0]["text"] == "[]"


async def test_a_process_that_vanishes_is_noticed_and_retried(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("exits")
        task = await there.task(run["run_id"], "gone")
        assert (run["state"], task["state"], task["try_number"]) == ("failed", "failed", 2)
        assert "status 7" in task["note"]


async def test_a_killed_process_is_retried(
    database_url: str, executor_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIT_FOLDER", str(executor_settings.home))
    async with world(database_url, executor_settings, PIPELINE) as there:
        run_id = await there.run("waits")
        file = executor_settings.home / "pid-1"
        await eventually(lambda: file.exists() and file.read_text())
        os.kill(int(file.read_text()), signal.SIGKILL)

        async def ended() -> bool:
            await tasks.requeue_due(there.database, there.notifier)
            return bool((await there.task(run_id, "wait"))["state"] == "success")

        await eventually(ended)
        assert (await there.task(run_id, "wait"))["try_number"] == 2
        last = there.log("waits", run_id, "wait")[-1]
        assert (last["level"], last["logger"]) == ("error", "tidegate.executor")
        assert last["event"] == "the task process was ended by SIGKILL before it reported an outcome"
        assert "tidegate.executor" not in str(there.log("waits", run_id, "wait", attempt=2))
        left = int((executor_settings.home / "left").read_text())
        await eventually(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


async def test_what_a_task_looked_up_is_in_no_log_and_no_note(
    database_url: str, executor_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_CONN_MYDB", "postgres://u:p%40ssw0rd@db/x")
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("secrets")
        task = await there.task(run["run_id"], "tell")
        assert (task["state"], task["note"]) == ("failed", "ValueError: bad password ***")
        log = there.log("secrets", run["run_id"], "tell")
        assert log[0]["event"] == "printed ***"
        assert "ValueError: bad password ***" in log[-1]["event"]
        assert "p@ssw0rd" not in str(log)


@pytest.mark.parametrize(("dag_id", "task_id"), [("hangs", "hang"), ("ignores_signals", "deaf")])
async def test_the_execution_timeout_ends_the_process(
    database_url: str, executor_settings: Settings, dag_id: str, task_id: str
) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end(dag_id)
        task = await there.task(run["run_id"], task_id)
        assert task["state"] == "failed"
        assert "execution_timeout" in task["note"]
        assert not psutil.pid_exists(task["pid"]) if task["pid"] else True


async def test_no_state_leaks_between_attempts(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("isolated")
        rows = await there.rows("SELECT value::text AS text FROM xcom ORDER BY task_id")
        assert run["state"] == "success"
        assert [row["text"] for row in rows] == ["1", "1"]


async def test_what_a_task_left_running_ends_with_it(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        run = await there.run_to_end("leaves_a_process")
        assert run["state"] == "success"
        pid = int((await there.rows("SELECT value::text AS text FROM xcom"))[0]["text"])
        await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def test_a_stopping_executor_ends_its_processes_and_gives_back_the_rest(
    database_url: str, executor_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIT_FOLDER", str(executor_settings.home))
    async with world(database_url, executor_settings, PIPELINE) as there:
        run_id = await there.run("waits")
        file = executor_settings.home / "pid-1"
        await eventually(lambda: file.exists() and file.read_text())
        pid = int(file.read_text())
    assert not psutil.pid_exists(pid)
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [command for command in commands if "warm_parent" in command]
    del run_id


async def test_a_claim_whose_answer_was_lost_is_started_nevertheless(
    database_url: str, executor_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database_url, executor_settings, PIPELINE) as deployment:
        answered = tasks.claim
        lost: list[AttemptOrder] = []

        async def claim(database: Database, *, owner_id: int, limit: int) -> list[AttemptOrder]:
            orders = await answered(database, owner_id=owner_id, limit=limit)
            if orders and not lost:
                lost.extend(orders)
                raise DatabaseUnavailable("the connection broke after the commit")
            return orders

        monkeypatch.setattr(tasks, "claim", claim)
        assert (await deployment.run_to_end("works"))["state"] == "success"
        assert lost


async def test_threads_left_by_the_import_mean_fresh_processes(database_url: str, executor_settings: Settings) -> None:
    source = """
import threading, time
from app.sdk import DAG, task
threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="left-behind").start()
with DAG("threaded"):
    @task
    def work():
        return threading.current_thread().name
    work()
"""
    async with world(database_url, executor_settings, source) as there:
        run = await there.run_to_end("threaded")
        assert run["state"] == "success"


STUCK = """
import sys, time
from app.sdk import DAG, task
if "--control" in sys.argv:  # in the warm parent only
    time.sleep(3600)
with DAG("stuck"):
    @task
    def work():
        pass
    work()
"""


async def test_an_import_that_never_ends_fails_the_attempt(
    database_url: str, executor_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "START_LIMIT", 0.0)
    impatient = executor_settings.model_copy(update={"dag_parse_timeout": 1.0})
    async with world(database_url, impatient, STUCK) as there:
        run = await there.run_to_end("stuck")
        assert run["state"] == "failed"
        assert "the import of pipeline.py took longer than 1 s" in (await there.task(run["run_id"], "work"))["note"]


async def test_an_executor_stops_while_an_import_never_ends(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, STUCK) as there:
        run_id = await there.run("stuck")
        await eventually(lambda: there.executor.free_slots < executor_settings.parallelism)
        there.stop.set()
        await eventually(lambda: there.executor.free_slots == executor_settings.parallelism, 60)
        assert (await there.task(run_id, "work"))["state"] == "scheduled"


async def test_a_batch_of_more_than_a_frame_reaches_its_task(database_url: str, executor_settings: Settings) -> None:
    source = """
from app.sdk import DAG, Asset, AssetSchedule, Batch, task
a = Asset("a", uri="x://a")
with DAG("large", schedule=AssetSchedule(a, batch=Batch(max_events=12))):
    @task
    def work(triggering_asset_events=None):
        return sum(len(event.extra["payload"]) for event in triggering_asset_events[a])
    work()
"""
    payload = "x" * 1_000_000
    async with world(database_url, executor_settings, source) as there:
        await store_events(there.database, *["a"] * 12, extra=json.dumps({"payload": payload}))
        await demand.plan(there.database, there.notifier)
        there.notifier.poke("tasks")
        ended = "SELECT state FROM dag_run WHERE dag_id = 'large' AND end_date IS NOT NULL"
        assert await eventually(lambda: there.row(ended), 60) == {"state": "success"}
        [xcom] = await there.rows("SELECT value FROM xcom")
        assert json.loads(xcom["value"]) == 12 * len(payload)


@pytest.mark.parametrize(
    "message",
    [
        messages.Exited(slot=7, status=0),
        messages.Forked(slot=7, pid=4242),
        messages.Forked(slot=1, pid=1),
        messages.Forked(slot=1, pid=-1),
    ],
)
async def test_what_a_warm_parent_says_out_of_turn_ends_only_it(tmp_path: Path, message: msgspec.Struct) -> None:
    """User code ran in it: a signal to "process 1" or "-1" would reach everybody's processes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    parent = WarmParent(
        root=tmp_path,
        entry="x.py",
        process=cast("Any", None),
        control=ours,
        ready=loop.create_future(),
        output=cast("Any", None),
    )
    slot = _Slot(loop.create_future(), loop.create_future())
    parent._slots[1] = slot
    loop.add_reader(ours.fileno(), parent._read)
    with theirs:
        theirs.send(msgspec.msgpack.encode(message))
        await eventually(lambda: parent.gone)
    with pytest.raises(ParentGone, match="no message, or out of turn"):
        await parent.ready
    with pytest.raises(ParentGone):
        await slot.forked
    assert await slot.exited == -signal.SIGKILL
