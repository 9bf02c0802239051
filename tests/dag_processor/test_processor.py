"""The dag processor on a real folder and a real database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.kernel.settings import Settings
from app.processes.dag_processor.processor import PipelinesFolderMissing, prepare_folder
from app.store.errors import DatabaseUnavailable
from tests.dag_processor.running import PipelinesFolder, dag, watching
from tests.waiting import eventually

MINE = """
class Mine(BaseEventTrigger):
    def __init__(self, **kwargs):
        self.kwargs = kwargs
    def serialize(self):
        return f"{__name__}.Mine", self.kwargs
    async def run(self):
        yield TriggerEvent("told by VERSION")
"""


def mine(*, version: str = "1", **kwargs: object) -> str:
    """A file with a watcher of its own trigger class, or without any watcher."""
    given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
    watcher = f"AssetWatcher('w', Mine({given}))" if kwargs else ""
    return watching("d", watcher, before=MINE.replace("VERSION", version))


async def test_files_appear_change_and_vanish(folder: PipelinesFolder) -> None:
    folder.write("first.py", dag("first"))
    folder.write("no_dag.py", "VALUE = 1\n")
    async with folder.processed():
        await folder.until_dags(first=1)
        folder.write("deep/er/second.py", dag("second"))
        await folder.until_dags(first=1, second=1)
        folder.write("first.py", dag("first", body="pass  # changed"))
        await folder.until_dags(first=2, second=1)
        folder.remove("first.py")
        await folder.until_dags(second=1)
        assert folder.job.count > 0
        assert await folder.errors() == {}


async def test_a_broken_file_keeps_its_last_good_version(folder: PipelinesFolder) -> None:
    folder.write("a.py", mine(a=1))
    async with folder.processed():
        await folder.until_dags(d=1)
        before = await folder.state.versions_of_rows("trigger", "asset", "dag_version")
        folder.write("a.py", "x = 1\nraise RuntimeError('no luck')\n")
        errors = await folder.until_errors("a.py")
        assert "no luck" in errors["a.py"]
        row = await folder.state.one("SELECT line, stack_trace FROM import_error")
        assert (row.line, "Traceback" in row.stack_trace) == (2, True)
        assert await folder.state.versions_of_rows("trigger", "asset", "dag_version") == before
        folder.write("a.py", mine(a=1))
        await folder.until_errors()
        assert await folder.state.versions_of_rows("trigger", "asset", "dag_version") == before


async def test_a_touched_file_is_not_loaded_again(folder: PipelinesFolder) -> None:
    folder.write("a.py", dag("a"))
    folder.write("b.py", dag("b"))
    async with folder.processed():
        await folder.until_dags(a=1, b=1)
        (first, _) = await folder.parses()
        os.utime(folder.path / "a.py")
        await asyncio.sleep(0)
        folder.write("b.py", dag("b", body="pass  # changed"))
        await folder.until_dags(a=1, b=2)
        folder.write("c.py", dag("c"))
        await folder.until_dags(a=1, b=2, c=1)
        assert (await folder.parses())[0] == first


async def test_a_changed_helper_makes_new_versions_of_those_who_loaded_it(folder: PipelinesFolder) -> None:
    folder.write(".tidegateignore", "lib/\n")
    folder.write("lib/names.py", "NAME = 'one'\n")
    folder.write("a.py", "from lib.names import NAME\nfrom app.sdk import DAG\nDAG('a', description=NAME)\n")
    folder.write("b.py", dag("b"))
    async with folder.processed():
        await folder.until_dags(a=1, b=1)
        folder.write("lib/names.py", "NAME = 'two'\n")
        await folder.until_dags(a=2, b=1)
        folder.write("lib/names.py", "raise RuntimeError('helper')\n")
        assert "lib/names.py, line 1" in (await folder.until_errors("a.py"))["a.py"]
        folder.remove("lib/names.py")
        await eventually(lambda: _has(folder, "No module"), 60)
        folder.write("lib/names.py", "NAME = 'three'\n")
        await folder.until_dags(a=3, b=1)
        await folder.until_errors()


async def _has(folder: PipelinesFolder, words: str) -> bool:
    return any(words in message for message in (await folder.errors()).values())


async def test_changed_trigger_code_restarts_the_trigger_in_place(folder: PipelinesFolder) -> None:
    folder.write("a.py", mine(a=1))
    async with folder.processed():
        await folder.until_dags(d=1)
        (before,) = await folder.state.triggers()
        assert before.classpath == "a.Mine"
        folder.write("a.py", mine(a=1, version="2"))
        await folder.until_dags(d=2)
        (after,) = await folder.state.triggers()
        assert (after.id, after.epoch) == (before.id, before.epoch + 1)
        assert after.bundle_digest != before.bundle_digest


async def test_a_second_file_takes_over_when_the_first_gives_the_dag_up(folder: PipelinesFolder) -> None:
    folder.write("a.py", dag("d"))
    async with folder.processed():
        await folder.until_dags(d=1)
        folder.write("b.py", dag("d"))
        assert "a.py" in (await folder.until_errors("b.py"))["b.py"]
        folder.remove("a.py")
        await folder.until_errors()
        await folder.until_dags(d=2)
        assert (await folder.state.one("SELECT file_path FROM dag")).file_path == "b.py"


async def test_ignored_hidden_and_unreadable_files(folder: PipelinesFolder) -> None:
    folder.write(".tidegateignore", "# drafts\ndraft_*.py\n!draft_kept.py\nold/\n!\n")
    folder.write("draft_a.py", dag("draft_a"))
    folder.write("draft_kept.py", dag("draft_kept"))
    folder.write("old/x.py", dag("x"))
    folder.write("sub/.tidegateignore", "/y.py\n")
    folder.write("sub/y.py", dag("y"))
    folder.write("sub/z.py", dag("z"))
    folder.write(".hidden/h.py", dag("h"))
    folder.write("__pycache__/c.py", dag("c"))
    folder.write("notes.txt", "no python")
    (folder.path / "gone.py").symlink_to("nowhere.py")
    (folder.path / "again").symlink_to(folder.path)
    Path(os.fsdecode(os.fsencode(folder.path) + b"/bad\xff.py")).write_text(dag("bad"))
    async with folder.processed():
        await folder.until_dags(draft_kept=1, z=1)
        errors = await folder.until_errors(".tidegateignore", "gone.py", "bad\\xff.py")
        assert "line 5" in errors[".tidegateignore"]
        folder.write(".tidegateignore", "old/\n")
        folder.remove("gone.py")
        await folder.until_dags(draft_kept=1, z=1, draft_a=1)
        await folder.until_errors("bad\\xff.py")


async def test_the_whole_folder_may_vanish_and_come_back(folder: PipelinesFolder) -> None:
    folder.write("a.py", dag("a"))
    async with folder.processed(dag_scan_interval=0.2):
        await folder.until_dags(a=1)
        moved = folder.path.with_name("moved")
        folder.path.rename(moved)
        count = folder.job.count
        await eventually(lambda: folder.job.count > count + 3)
        assert await folder.dags() == {"a": 1}, "a folder that is not there says nothing about its files"
        moved.rename(folder.path)
        folder.write("b.py", dag("b"))
        await folder.until_dags(a=1, b=1)


async def test_what_happened_while_nobody_looked(folder: PipelinesFolder) -> None:
    folder.write("a.py", dag("a"))
    folder.write("b.py", dag("b"))
    async with folder.processed():
        await folder.until_dags(a=1, b=1)
    folder.remove("a.py")
    folder.write("b.py", dag("b", body="pass  # changed"))
    async with folder.processed():
        await folder.until_dags(b=2)


@pytest.mark.timeout(120)
async def test_a_file_that_hangs_holds_up_nobody(folder: PipelinesFolder) -> None:
    """Not even several that hang when there is room for two, and all are seen first."""
    names = [f"a_hangs_{number}.py" for number in range(3)]
    for name in names:
        folder.write(name, "import time\ntime.sleep(600)\n")
    async with folder.processed(dag_parse_timeout=12):
        folder.write("b.py", dag("b"))
        await folder.until_dags(b=1)
        assert await folder.errors() == {}, "they still hang"
        errors = await folder.until_errors(*names)
        assert "longer than 12 s" in errors[names[0]]


@pytest.mark.timeout(180)
async def test_toggling_a_watcher_200_times_ends_with_one_trigger(folder: PipelinesFolder) -> None:
    folder.write("a.py", mine(a=1))
    async with folder.processed():
        await folder.until_dags(d=1)
        for turn in range(200):
            folder.write("a.py", mine(a=1) if turn % 2 else mine())
            if turn == 100:
                folder.write("other.py", dag("other"))
            await asyncio.sleep(0.02 if turn % 20 else 0.3)

        async def settled() -> bool:
            rows = await folder.state.triggers()
            return len(rows) == 1 and rows[0].wanted and "other" in await folder.dags()

        await eventually(settled, 60)
        assert await folder.errors() == {}


async def test_a_missing_folder_is_a_clear_error_unless_it_may_be_made(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"dags_folder": settings.home / "not" / "there"})
    with pytest.raises(PipelinesFolderMissing, match="TIDEGATE_DAGS_FOLDER"):
        prepare_folder(elsewhere, create=False)
    assert prepare_folder(elsewhere, create=True).is_dir()


async def test_what_is_stored_is_what_was_loaded(folder: PipelinesFolder) -> None:
    """A file that is replaced while it is being loaded: the old declaration never goes with the new code."""
    started = folder.settings.home / "started"

    def slow(text: str) -> str:
        wait = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(1)\n"
        return f"{wait}from app.sdk import DAG\nDAG('d', description={text!r})\n"

    folder.write("a.py", slow("one"))
    async with folder.processed():
        await eventually(started.exists, 60)
        folder.write("a.py", slow("two"))
        await folder.until_dags(d=1)
        row = await folder.state.one(
            "SELECT v.spec->>'description' AS said, convert_from(f.content, 'UTF8') AS code "
            "FROM dag_version v JOIN bundle_file f USING (bundle_digest)"
        )
        assert row.said == "two"
        assert "'two'" in row.code


async def test_the_database_may_be_away_for_a_while(folder: PipelinesFolder) -> None:
    folder.write("a.py", dag("a"))
    away = True
    entering = folder.database.transaction

    def transaction() -> object:
        if away:
            raise DatabaseUnavailable("away")
        return entering()

    folder.database.transaction = transaction  # type: ignore[method-assign, assignment]
    async with folder.processed():
        await eventually(lambda: folder.job.count == 0)
        await asyncio.sleep(0)
        away = False
        await folder.until_dags(a=1)


async def test_calls_that_block_in_a_trigger_are_a_warning_of_its_dags(folder: PipelinesFolder) -> None:
    blocking = mine(a=1).replace("        yield", "        import time; time.sleep(1)\n        yield", 1)
    folder.write("a.py", blocking)
    async with folder.processed():
        await folder.until_dags(d=1)
        row = await folder.state.one("SELECT dag_id, warning_type, message FROM dag_warning")
        assert (row.dag_id, row.warning_type) == ("d", "blocking_trigger")
        assert "TG101 time.sleep() blocks the event loop in Mine.run()" in row.message
        folder.write("a.py", mine(a=1))
        await folder.until_dags(d=2)
        assert (await folder.state.one("SELECT count(*) FROM dag_warning"))[0] == 0


async def test_queue_and_team_of_a_watcher_reach_its_trigger(folder: PipelinesFolder) -> None:
    source = """
        from app.sdk import DAG, Asset
        from watchers import AssetWatcher, FileEventTrigger

        found = FileEventTrigger("/somewhere/*.csv", queue={queue!r})
        with DAG({name!r}, schedule=[Asset({name!r}, watchers=[AssetWatcher("w", found)])]):
            pass
    """

    async def rows() -> list[tuple[str | None, str | None, bool]]:
        return [(row.team_name, row.queue, row.wanted) for row in await folder.state.triggers()]

    folder.write("plain.py", source.format(name="plain", queue=None))
    async with folder.processed(team_folders="ops, sales"):
        await folder.until_dags(plain=1)
        folder.write("sales/orders.py", source.format(name="orders", queue="private"))
        await folder.until_dags(plain=1, orders=1)
        folder.write("other/more.py", source.format(name="more", queue=None))
        await folder.until_dags(plain=1, orders=1, more=1)
        assert await rows() == [(None, None, True), ("sales", "private", True)]
        folder.write("sales/orders.py", source.format(name="orders", queue="eu"))
        await eventually(lambda: _is(rows, [(None, None, True), ("sales", "eu", True)]))
        folder.write("sales/orders.py", source.format(name="orders", queue="a,b"))
        assert "without commas" in (await folder.until_errors("sales/orders.py"))["sales/orders.py"]
        assert len(await rows()) == 2


async def _is(ask: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await ask() == expected
