"""What reading a pipeline file does to the database."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from app.domain.specs import LocatedError, ScheduleKind, ScheduleSpec, WatcherSpec
from app.kernel.errors import NotFound
from app.services.dags import (
    DagDefaults,
    KnownFiles,
    known_files,
    mark_missing,
    record_import_error,
    retire_missing,
    set_paused,
)
from app.store.database import Database
from tests.declared import Declared, consumer, on, producer, trigger, watched

EVERYTHING = (
    "asset",
    "asset_watcher",
    "asset_watcher_source",
    "asset_reference",
    "bundle",
    "dag",
    "dag_version",
    "dag_warning",
    "trigger",
    "source_position",
)
TICK = trigger('{"every": 1}')
TOCK = trigger('{"every": 2}')


@pytest.fixture
def declared(database: Database) -> Declared:
    return Declared(database)


async def retire(declared: Declared) -> tuple[str, ...]:
    return await retire_missing(
        declared.database, declared.notifier, grace=timedelta(0), encrypt=lambda kwargs: kwargs.encode()
    )


async def test_a_new_file_is_active_at_once(declared: Declared) -> None:
    orders = watched("orders", ("tick", TICK))
    outcome = await declared.sync("a.py", consumer("d", orders))
    assert outcome.versions == ("d",)
    dag = await declared.one(
        "SELECT d.*, v.version_number, v.spec FROM dag d JOIN dag_version v ON v.id = current_version_id"
    )
    assert (dag.is_active, dag.is_paused, dag.version_number) == (True, False, 1)
    assert "every" not in str(dag.spec), "arguments of triggers are not stored in the clear"
    (row,) = await declared.triggers()
    assert (row.wanted, row.status, row.epoch, bytes(row.kwargs)) == (True, "unassigned", 0, b'sealed {"every": 1}')
    assert await declared.links() == {("orders", "tick", row.id)}
    assert await declared.active_assets() == {"x://orders"}
    assert await known_files(declared.database) == KnownFiles(present=("a.py",), missing=())


async def test_the_same_declaration_writes_nothing(declared: Declared) -> None:
    orders = watched("orders", ("tick", TICK), group="g", extra={"a": [1, 2.5, None]})
    dags = (consumer("d", orders, tags=("b", "a")), producer("p", orders))
    await declared.sync("a.py", *dags, warnings=("careful",))
    before = await declared.versions_of_rows(*EVERYTHING)
    for _ in range(15):
        outcome = await declared.sync("a.py", *dags, warnings=("careful",))
        assert (outcome.versions, outcome.missing) == ((), ())
    assert await declared.versions_of_rows(*EVERYTHING) == before


async def test_a_version_is_appended_for_a_change_of_declaration_or_code(declared: Declared) -> None:
    await declared.sync("a.py", consumer("d"))
    await declared.sync("a.py", consumer("d", description="new"))
    await declared.sync("a.py", consumer("d", description="new"), code="# changed")
    await declared.sync("a.py", consumer("d", description="new"), code="# changed")
    rows = await declared.rows(
        "SELECT v.version_number, v.id = d.current_version_id FROM dag_version v JOIN dag d USING (dag_id) ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [(1, False), (2, False), (3, True)]


async def test_paused_at_creation_is_kept_afterwards(declared: Declared) -> None:
    paused = DagDefaults(is_paused=True, max_active_runs=3, max_active_tasks=4)
    orders = watched("orders", ("tick", TICK))
    await declared.sync("a.py", consumer("d", orders), consumer("e", is_paused_upon_creation=False), defaults=paused)
    rows = await declared.rows("SELECT dag_id, is_paused, max_active_runs, max_active_tasks FROM dag ORDER BY 1")
    assert [tuple(row) for row in rows] == [("d", True, 3, 4), ("e", False, 3, 4)]
    assert [row.wanted for row in await declared.triggers()] == [False]
    await set_paused(declared.database, declared.notifier, dag_id="d", paused=False)
    await declared.sync("a.py", consumer("d", orders, is_paused_upon_creation=True), code="2", defaults=paused)
    assert (await declared.one("SELECT is_paused FROM dag WHERE dag_id = 'd'")).is_paused is False


async def test_equal_watchers_of_different_files_share_one_trigger(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    await declared.sync("b.py", consumer("b", watched("two", ("w", TICK))))
    await declared.sync("c.py", consumer("c", watched("one", ("w", TICK))))
    (row,) = await declared.triggers()
    assert await declared.links() == {("one", "w", row.id), ("two", "w", row.id)}
    await declared.sync("a.py", consumer("a", watched("one")))
    assert await declared.links() == {("one", "w", row.id), ("two", "w", row.id)}, "c.py still declares it"
    await declared.sync("c.py", consumer("c", watched("one")))
    assert await declared.links() == {("two", "w", row.id)}
    await declared.sync("b.py", consumer("b", watched("two")))
    assert await declared.triggers() == []


async def test_a_mere_mention_elsewhere_changes_nothing(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK), group="g", extra={"k": 1})))
    before = await declared.versions_of_rows("asset", "asset_watcher", "trigger", "asset_watcher_source")
    await declared.sync("b.py", consumer("b", watched("one")), producer("p", watched("one")))
    assert await declared.versions_of_rows("asset", "asset_watcher", "trigger", "asset_watcher_source") == before


async def test_group_and_extra_follow_the_only_file(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", group="g", extra={"k": 1})))
    await declared.sync("a.py", consumer("a", watched("one")))
    row = await declared.one("SELECT group_name, extra FROM asset")
    assert (row.group_name, row.extra) == ("asset", {})


async def test_a_changed_watcher_inherits_positions(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    (old,) = await declared.triggers()
    await declared.execute(
        "INSERT INTO source_position (trigger_id, source, lane, position, updated_at) "
        "VALUES (:id, 's', '0', '7', now())",
        id=old.id,
    )
    await declared.sync("a.py", consumer("a", watched("one", ("w", TOCK))))
    (new,) = await declared.triggers()
    assert new.id != old.id
    position = await declared.one("SELECT * FROM source_position")
    assert (position.trigger_id, position.lane, position.position) == (new.id, "0", 7)


async def test_a_changed_watcher_inherits_dead_letters(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK)), watched("two", ("w", TICK))))
    (old,) = await declared.triggers()
    await declared.execute(
        "INSERT INTO dead_letter (trigger_id, asset_id, code, reason) "
        "SELECT t.id, a.id, 'schema', a.name FROM asset a, trigger t "
        "UNION ALL SELECT id, NULL, 'size', 'all' FROM trigger"
    )

    async def owners() -> dict[str, int]:
        return {row.reason: row.trigger_id for row in await declared.rows("SELECT reason, trigger_id FROM dead_letter")}

    await declared.sync("a.py", consumer("a", watched("one", ("w", TOCK)), watched("two", ("w", TICK))))
    (new,) = [row for row in await declared.triggers() if row.id != old.id]
    assert await owners() == {"one": new.id, "two": old.id, "all": old.id}
    await declared.sync("a.py", consumer("a", watched("one", ("w", TOCK)), watched("two", ("w", TOCK))))
    assert await owners() == {"one": new.id, "two": new.id, "all": new.id}


async def test_name_filter_and_schema_change_in_place(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    (before,) = await declared.rows("SELECT xmin::text, * FROM trigger")
    link = await declared.one("SELECT id FROM asset_watcher")
    changed = WatcherSpec(name="v", trigger=TICK, when="a == `1`", schema='{"type":"object"}')
    await declared.sync("a.py", consumer("a", watched("one", changed)))
    after = await declared.one("SELECT id, name, when_expression, payload_schema FROM asset_watcher")
    assert tuple(after) == (link.id, "v", "a == `1`", '{"type":"object"}')
    assert list(await declared.rows("SELECT xmin::text, * FROM trigger")) == [before]


async def test_a_name_that_another_file_uses_is_left_to_it(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    await declared.sync("b.py", consumer("b", watched("one", ("w", TICK))))
    await declared.sync("b.py", consumer("b", watched("one", ("v", TICK))))
    (row,) = await declared.triggers()
    assert await declared.links() == {("one", "w", row.id), ("one", "v", row.id)}


async def test_toggling_a_watcher_ends_with_exactly_one_trigger(declared: Declared) -> None:
    for turn in range(60):
        watchers = (("w", TICK),) if turn % 2 else ()
        await declared.sync("a.py", consumer("a", watched("one", *watchers)), code=str(turn % 2))
    (row,) = await declared.triggers()
    assert row.wanted
    assert await declared.links() == {("one", "w", row.id)}


async def test_two_files_toggling_the_same_watcher_at_once(declared: Declared) -> None:
    async def toggle(file: str) -> None:
        for turn in range(30):
            watchers = (("w", TICK),) if turn % 2 else ()
            await declared.sync(f"{file}.py", consumer(file, watched("one", *watchers)), code=str(turn % 2))

    await asyncio.gather(*(toggle(file) for file in "abcd"))
    (row,) = await declared.triggers()
    assert await declared.links() == {("one", "w", row.id)}
    assert len(await declared.rows("SELECT * FROM asset_watcher_source")) == 4


async def test_a_running_trigger_is_fenced_when_its_code_changes(declared: Declared) -> None:
    own = trigger(classpath="a.Mine", in_bundle=True)
    await declared.sync("a.py", consumer("a", watched("one", ("w", own), ("tick", TICK))), code="1")
    await declared.execute(
        "INSERT INTO job (job_type, hostname, pid, latest_heartbeat) VALUES ('triggerer', 'h', 1, now())"
    )
    await declared.execute("UPDATE trigger SET status = 'running', epoch = 1, owner_id = (SELECT id FROM job)")
    old, installed = await declared.triggers()
    await declared.sync("a.py", consumer("a", watched("one", ("w", own), ("tick", TICK))), code="2")
    new, same = await declared.triggers()
    assert (new.id, new.status, new.owner_id, new.epoch) == (old.id, "unassigned", None, 2)
    assert new.bundle_digest != old.bundle_digest
    assert same == installed, "an installed class does not care"
    change = await declared.one("SELECT * FROM state_change")
    assert (change.subject_id, change.from_state, change.to_state) == (old.id, "running", "unassigned")


async def test_shared_code_restarts_a_trigger_once(declared: Declared) -> None:
    own = trigger(classpath="lib.Mine", in_bundle=True)
    for code in "12":
        for file in "ab":
            await declared.sync(f"{file}.py", consumer(file, watched("one", ("w", own))), code=f"{file}{code}")
    (row,) = await declared.triggers()
    assert row.epoch == 1


async def test_pause_acts_at_once_and_only_for_the_last_consumer(declared: Declared) -> None:
    one = watched("one", ("w", TICK))
    await declared.sync("a.py", consumer("a", one), consumer("b", one), producer("p", one))

    async def pause(dag_id: str, paused: bool) -> bool:
        await set_paused(declared.database, declared.notifier, dag_id=dag_id, paused=paused)
        return bool((await declared.triggers())[0].wanted)

    assert await pause("a", True) is True
    assert await pause("b", True) is False, "a producer is no consumer"
    assert await pause("b", True) is False
    assert await pause("a", False) is True
    with pytest.raises(NotFound):
        await pause("nobody", True)


async def test_a_conflict_warns_on_both_and_the_first_keeps(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK), uri="x://1")))
    await declared.sync("b.py", consumer("b", watched("one", ("w", TOCK), uri="x://2")))
    assert await declared.active_assets() == {"x://1"}
    assert [row.wanted for row in await declared.triggers()] == [True, False]
    warnings = await declared.rows("SELECT dag_id, warning_type FROM dag_warning ORDER BY 1")
    assert [tuple(row) for row in warnings] == [("a", "asset conflict"), ("b", "asset conflict")]
    await declared.sync("a.py", consumer("a", watched("other", ("w", TICK), uri="x://1")))
    assert await declared.active_assets() == {"x://1", "x://2"}
    assert [row.wanted for row in await declared.triggers()] == [True, True]
    assert await declared.rows("SELECT * FROM dag_warning") == []


async def test_swaps_in_one_edit_are_atomic(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", uri="x://1"), watched("two", uri="x://2")))
    await declared.sync("a.py", consumer("a", watched("one", uri="x://2"), watched("two", uri="x://1")))
    active = await declared.rows("SELECT name, uri FROM asset WHERE is_active ORDER BY 1")
    assert [tuple(row) for row in active] == [("one", "x://2"), ("two", "x://1")]
    assert await declared.rows("SELECT * FROM dag_warning") == []


async def test_a_chain_of_conflicts_never_breaks_the_invariant(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("n1", uri="x://1")))
    await declared.sync("b.py", consumer("b", watched("n1", uri="x://2")))
    await declared.sync("c.py", consumer("c", watched("n2", uri="x://2")))
    assert await declared.active_assets() == {"x://1", "x://2"}
    await declared.sync("a.py", consumer("a"))
    rows = await declared.rows("SELECT name, uri FROM asset WHERE is_active")
    assert [tuple(row) for row in rows] == [("n2", "x://2")], "n1 at x://2 still collides with the active n2"


async def test_a_second_file_with_a_live_dag_id_is_refused(declared: Declared) -> None:
    await declared.sync("a.py", consumer("d", watched("one", ("w", TICK))))
    before = await declared.versions_of_rows(*EVERYTHING)
    outcome = await declared.sync("b.py", consumer("d", line=3), consumer("e"))
    assert outcome.refused is not None
    error = await declared.one("SELECT * FROM import_error")
    assert (error.filename, error.line) == ("b.py", 3)
    assert "a.py" in error.message
    assert await declared.versions_of_rows(*EVERYTHING) == before


async def test_a_moved_file_takes_its_dags_along(declared: Declared) -> None:
    one = watched("one", ("w", TICK))
    await declared.sync("a.py", consumer("d", one), code="same")
    (before,) = await declared.triggers()
    assert await mark_missing(declared.database, ["a.py"]) == ("d",)
    outcome = await declared.sync("b.py", consumer("d", one), code="same")
    assert outcome.refused is None
    assert await declared.triggers() == [before]
    assert await retire(declared) == ()
    assert await known_files(declared.database) == KnownFiles(present=("b.py",), missing=())
    sources = await declared.rows("SELECT file_path FROM asset_watcher_source")
    assert [row.file_path for row in sources] == ["b.py"]
    await declared.sync("b.py", consumer("d", watched("one")))
    assert await declared.triggers() == []


async def test_a_vanished_file_is_retired_after_the_grace(declared: Declared) -> None:
    one = watched("one", ("w", TICK))
    await declared.sync("a.py", consumer("d", one))
    await mark_missing(declared.database, ["a.py"])
    before = await declared.triggers()
    retired = await retire_missing(
        declared.database, declared.notifier, grace=timedelta(minutes=5), encrypt=lambda kwargs: kwargs.encode()
    )
    assert retired == ()
    assert await declared.triggers() == before
    assert await retire(declared) == ("d",)
    assert (await declared.one("SELECT is_active FROM dag")).is_active is False
    assert await declared.triggers() == []
    assert await declared.active_assets() == set()
    assert await known_files(declared.database) == KnownFiles(present=(), missing=())
    await declared.sync("a.py", consumer("d", one))
    assert (await declared.one("SELECT is_active FROM dag")).is_active is True
    assert await declared.active_assets() == {"x://one"}


async def test_coming_back_within_the_grace_leaves_no_trace(declared: Declared) -> None:
    one, two = watched("one", ("w", TICK)), watched("two", ("w", TOCK))
    dags = (consumer("d", one), consumer("e", two))
    await declared.sync("a.py", *dags)
    before = await declared.versions_of_rows("trigger", "asset", "asset_watcher", "asset_reference")
    outcome = await declared.sync("a.py", dags[0], code="2")
    assert outcome.missing == ("e",)
    await declared.sync("a.py", *dags)
    assert await declared.versions_of_rows("trigger", "asset", "asset_watcher", "asset_reference") == before
    assert await retire(declared) == ()


async def test_a_dag_removed_from_a_file_that_stays_is_retired(declared: Declared) -> None:
    one, two = watched("one", ("w", TICK)), watched("two", ("w", TOCK))
    await declared.sync("a.py", consumer("d", one), consumer("e", two))
    await declared.sync("a.py", consumer("d", one))
    assert len(await declared.triggers()) == 2
    assert await retire(declared) == ("e",)
    (left,) = await declared.triggers()
    assert await declared.links() == {("one", "w", left.id)}
    assert await declared.active_assets() == {"x://one"}


async def test_a_broken_file_keeps_everything(declared: Declared) -> None:
    await declared.sync("a.py", consumer("d", watched("one", ("w", TICK))))
    before = await declared.versions_of_rows(*EVERYTHING)
    error = LocatedError(file="a.py", message="bad \0 \ud800", line=4, traceback="Traceback\0")
    assert await record_import_error(declared.database, error) is True
    assert await record_import_error(declared.database, error) is False
    assert await declared.versions_of_rows(*EVERYTHING) == before
    row = await declared.one("SELECT * FROM import_error")
    assert (row.filename, row.line, row.message) == ("a.py", 4, "bad \\x00 \\ud800")
    await declared.sync("a.py", consumer("d", watched("one", ("w", TICK))))
    assert await declared.rows("SELECT * FROM import_error") == []


async def test_an_edited_schedule_drops_what_left_it_and_keeps_the_rest(declared: Declared) -> None:
    one, two = watched("one"), watched("two")
    await declared.sync("a.py", consumer("d", one, two, schedule=on(one, two, every=True)))
    await declared.execute("INSERT INTO event_body (extra) VALUES ('{}')")
    await declared.execute(
        "INSERT INTO asset_event (asset_id, body_id, origin, timestamp) "
        "SELECT a.id, b.id, 'rest', now() FROM asset a, event_body b ORDER BY a.name"
    )
    await declared.execute(
        "INSERT INTO demand (dag_id, event_id, asset_id, arrival, state) "
        "SELECT 'd', e.id, e.asset_id, e.id, 'pending' FROM asset_event e"
    )
    await declared.sync("a.py", consumer("d", two, watched("three")))
    rows = await declared.rows(
        "SELECT a.name, d.state, d.reason IS NULL FROM demand d JOIN asset a ON a.id = d.asset_id ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [("one", "dropped", False), ("two", "pending", True)]
    await mark_missing(declared.database, ["a.py"])
    await retire(declared)
    assert [row.state for row in await declared.rows("SELECT state FROM demand")] == ["dropped", "dropped"]


async def test_a_time_schedule_gets_its_next_run_when_new_or_changed(declared: Declared) -> None:
    daily = ScheduleSpec(kind=ScheduleKind.CRON, cron="0 0 * * *")
    await declared.sync("a.py", consumer("d", schedule=daily))
    first = await declared.one("SELECT next_run_at FROM dag")
    assert first.next_run_at is not None
    await declared.execute("UPDATE dag SET next_run_at = next_run_at + interval '3 days'")
    await declared.sync("a.py", consumer("d", schedule=daily), code="2")
    assert (await declared.one("SELECT next_run_at FROM dag")).next_run_at == first.next_run_at + timedelta(days=3)
    await declared.sync("a.py", consumer("d", schedule=msgspec.structs.replace(daily, cron="30 1 * * *")))
    assert (await declared.one("SELECT next_run_at FROM dag")).next_run_at.minute == 30
    await declared.sync("a.py", consumer("d", watched("one")))
    assert (await declared.one("SELECT next_run_at FROM dag")).next_run_at is None


@pytest.mark.parametrize(("catchup", "kept"), [(False, False), (True, True)])
async def test_what_a_pause_missed_is_passed_over_unless_the_dag_catches_up(
    declared: Declared, catchup: bool, kept: bool
) -> None:
    daily = ScheduleSpec(kind=ScheduleKind.CRON, cron="0 0 * * *")
    spec = msgspec.structs.replace(consumer("d", schedule=daily), catchup=catchup, start_date="2020-01-01T00:00:00Z")
    await declared.sync("a.py", spec)
    await set_paused(declared.database, declared.notifier, dag_id="d", paused=True)
    long_ago = "'2020-03-01T00:00:00Z'::timestamptz"
    await declared.execute(f"UPDATE dag SET next_run_at = {long_ago}, next_logical_date = {long_ago}")
    await set_paused(declared.database, declared.notifier, dag_id="d", paused=False)
    row = await declared.one("SELECT next_run_at, next_logical_date, now() AS now FROM dag")
    assert row.next_run_at == row.next_logical_date
    assert (row.next_run_at < row.now) is kept
