from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from watchers import file_patterns, file_watch
from watchers.describe import build_trigger, describe_trigger
from watchers.errors import SourceUnavailable, WatcherDeclarationError
from watchers.file_patterns import read_pattern
from watchers.files import FileEventTrigger
from watchers.payloads import encode_payload
from watchers.testing import driving
from watchers.triggers import PositionUpdate, SourceStatus


async def eventually(condition: Callable[[], object], *, within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.02)


class Status(SourceStatus):
    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.recoveries = 0

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def recovered(self) -> None:
        self.recoveries += 1


def names(payloads: list[Any]) -> list[str]:
    return sorted(payload["name"] for payload in payloads)


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_where_a_declaration_cannot_work_it_is_refused(tmp_path: Path) -> None:
    for path in ("inbox/*.csv", "~/x", "", "/a\0b", b"/x", "/"):
        with pytest.raises(WatcherDeclarationError):
            FileEventTrigger(path)  # type: ignore[arg-type]
    for debounce in (-1, float("nan"), 1e9, "x"):
        with pytest.raises(WatcherDeclarationError, match="debounce"):
            FileEventTrigger(tmp_path / "x", debounce=debounce)  # type: ignore[arg-type]


def test_a_trigger_is_built_again_from_its_description(tmp_path: Path) -> None:
    description = describe_trigger(FileEventTrigger(tmp_path / "*.csv", initial=False))
    again = build_trigger(description.classpath, description.kwargs_text)
    assert describe_trigger(again) == description
    assert isinstance(again, FileEventTrigger)
    assert again.default_source() == f"file:{tmp_path}/*.csv"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.csv", ["a.csv"]),
        ("*.csv", ["a.csv", "b.csv"]),
        ("[a].*", ["a.csv", "a.txt"]),
        ("sub", ["sub/c.csv"]),
        ("sub/*/*.csv", ["sub/deep/d.csv", "sub/loop/a.csv", "sub/loop/b.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("**", ["a.csv", "a.txt", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("**/**/c.csv", ["sub/c.csv"]),
        (".*", [".hidden.csv"]),
        ("?.md", []),
        ("a.csv/*", []),
        ("missing/*.csv", []),
    ],
)
def test_a_pattern_means_the_files_it_says(tmp_path: Path, pattern: str, found: list[str]) -> None:
    for name in ("a.csv", "b.csv", "a.txt", ".hidden.csv", "sub/c.csv", "sub/deep/d.csv", ".secret/e.csv"):
        write(tmp_path / name)
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "self.csv").symlink_to("self.csv")
    (tmp_path / "dangling.csv").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    read = read_pattern(tmp_path / pattern, recursive=False)
    scan = read.scan()
    assert sorted(os.path.relpath(path, tmp_path) for path in scan.files) == found
    assert scan.failure is None
    assert all(read.matches(path) for path in scan.files)
    assert not read.matches(str(tmp_path / ".secret" / "e.csv"))


def test_a_folder_can_be_meant_with_all_below(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a")
    write(tmp_path / "in" / "sub" / "b")
    assert len(read_pattern(tmp_path / "in", recursive=False).scan().files) == 1
    assert len(read_pattern(tmp_path / "in", recursive=True).scan().files) == 2


async def test_files_there_appearing_and_changing_are_events(tmp_path: Path) -> None:
    first = write(tmp_path / "first.csv", "1")
    async with driving(FileEventTrigger(tmp_path / "*.csv")) as recording:
        (event,) = await recording.until(1)
        status = first.stat()
        assert event.key == f"{first}:{status.st_mtime_ns}:1"
        assert event.payload["path"] == str(first)
        assert event.payload["size"] == 1
        assert event.payload["mtime"].endswith("+00:00")
        write(tmp_path / "second.csv")
        write(tmp_path / "other.txt")
        await recording.until(2)
        write(first, "changed")
        events = await recording.until(3)
        assert [event.payload["name"] for event in events] == ["first.csv", "second.csv", "first.csv"]
        assert len({event.key for event in events}) == 3
        first.unlink()
        write(tmp_path / "third.csv")
        await recording.until(4)
        assert recording.payloads[3]["name"] == "third.csv"
    assert (tmp_path / "second.csv").exists()


async def test_a_restart_reports_the_same_identities(tmp_path: Path) -> None:
    write(tmp_path / "a")
    keys = []
    for _ in range(2):
        async with driving(FileEventTrigger(tmp_path)) as recording:
            keys.append((await recording.until(1))[0].key)
    assert keys[0] == keys[1]


async def test_a_folder_may_come_go_and_come_back(tmp_path: Path) -> None:
    inbox = tmp_path / "not" / "yet" / "inbox"
    async with driving(FileEventTrigger(inbox / "**" / "*.csv")) as recording:
        write(inbox / "a.csv")
        await recording.until(1)
        write(inbox / "deep" / "er" / "b.csv")
        await recording.until(2)
        (inbox / "a.csv").unlink()
        (inbox / "deep" / "er" / "b.csv").unlink()
        (inbox / "deep" / "er").rmdir()
        (inbox / "deep").rmdir()
        inbox.rmdir()
        write(inbox / "c.csv", "new")
        await recording.until(3)
    assert names(recording.payloads) == ["a.csv", "b.csv", "c.csv"]


async def test_a_path_may_be_a_file_and_then_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "it"
    async with driving(FileEventTrigger(path)) as recording:
        write(path)
        await recording.until(1)
        path.unlink()
        write(path / "inside")
        await recording.until(2)
    assert names(recording.payloads) == ["inside", "it"]


async def test_a_folder_moved_in_with_its_files_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "a.csv")
    (tmp_path / "in").mkdir()
    async with driving(FileEventTrigger(tmp_path / "in" / "**" / "*.csv")) as recording:
        write(tmp_path / "in" / "first.csv")
        await recording.until(1)
        (tmp_path / "elsewhere").rename(tmp_path / "in" / "moved")
        await recording.until(2)
    assert names(recording.payloads) == ["a.csv", "first.csv"]


async def test_a_file_that_grows_is_reported_when_it_is_still(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    async with driving(FileEventTrigger(path, debounce=1.0)) as recording:
        write(path, "")
        for length in range(1, 21):
            with path.open("a") as file:
                file.write("x")
            await asyncio.sleep(0.05)
            assert recording.events == [] or recording.payloads[-1]["size"] >= length - 1
        await recording.until(1)
        await eventually(lambda: recording.payloads[-1]["size"] == 20)


async def test_odd_names_are_carried(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    odd = [b"new\nline", b"not\xffutf8", "naïve".encode()]
    async with driving(FileEventTrigger(tmp_path)) as recording:
        for name in odd:
            write(Path(os.fsdecode(folder + b"/" + name)))
        await recording.until(3)
    by_name = {event.payload["name"]: event for event in recording.events}
    assert set(by_name) == {"new\nline", "not\\xffutf8", "naïve"}
    assert by_name["not\\xffutf8"].payload["path_bytes"] == folder + b"/not\xffutf8"
    for event in recording.events:
        encode_payload(event.payload)
        assert event.key is not None
        event.key.encode()


async def test_without_initial_only_what_comes_later_counts_also_over_a_restart(tmp_path: Path) -> None:
    write(tmp_path / "old")
    trigger = FileEventTrigger(tmp_path, initial=False)
    async with driving(trigger) as recording:
        await eventually(lambda: recording.commits)
        assert isinstance(recording.commits[0][0], PositionUpdate)
        write(tmp_path / "new")
        await recording.until(1)
    write(tmp_path / "while away")
    again = FileEventTrigger(tmp_path, initial=False)
    again.positions = recording.positions
    async with driving(again) as later:
        await later.until(2)
    assert names(recording.payloads) == ["new"]
    assert names(later.payloads) == ["new", "while away"]


async def test_lost_notifications_are_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "FULL_SCAN_SECONDS", 0.3)
    monkeypatch.setattr(file_watch.FileWatch, "_consider_change", lambda *_: None)
    async with driving(FileEventTrigger(tmp_path)) as recording:
        write(tmp_path / "a")
        await recording.until(1)
        write(tmp_path / "b")
        await recording.until(2)


async def test_without_notifications_it_scans_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("too many watches")

    monkeypatch.setattr("watchfiles.watch", refuse)
    trigger = FileEventTrigger(tmp_path)
    status = Status()
    trigger.status = status
    async with driving(trigger) as recording:
        write(tmp_path / "a")
        await recording.until(1)
        write(tmp_path / "b")
        await recording.until(2)
    assert isinstance(status.errors[0], SourceUnavailable)
    assert "too many watches" in str(status.errors[0])


async def test_a_folder_that_may_not_be_read_is_told_and_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "FULL_SCAN_SECONDS", 0.2)
    closed = threading.Event()
    closed.set()
    real = os.scandir

    def scandir(path: str) -> Any:
        if closed.is_set():
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    trigger = FileEventTrigger(tmp_path / "*.csv")
    status = Status()
    trigger.status = status
    write(tmp_path / "a.csv")
    async with driving(trigger) as recording:
        await eventually(lambda: status.errors)
        closed.clear()
        await recording.until(1)
        await eventually(lambda: status.recoveries)


async def test_many_files_come_in_commits_of_a_hundred_in_order(tmp_path: Path) -> None:
    for number in range(250):
        path = write(tmp_path / f"{number:03}")
        os.utime(path, ns=(0, number))
    async with driving(FileEventTrigger(tmp_path)) as recording:
        await recording.until(250)
    assert [len(commit) for commit in recording.commits] == [100, 100, 50]
    assert [payload["name"] for payload in recording.payloads] == [f"{number:03}" for number in range(250)]


async def test_a_burst_in_new_folders_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()

    def drop() -> None:
        for number in range(600):
            folder = tmp_path / "in" / f"{number % 60}"
            folder.mkdir(exist_ok=True)
            written = write(tmp_path / "out" / f"{number}.csv", str(number))
            written.rename(folder / written.name)

    async with driving(FileEventTrigger(tmp_path / "in" / "*" / "*.csv")) as recording:
        await asyncio.to_thread(drop)
        await recording.until(600)
    assert len({event.key for event in recording.events}) == len(recording.events) == 600


def test_notifications_are_not_logged_one_by_one(tmp_path: Path) -> None:
    file_watch._quiet_notifications()
    assert not logging.getLogger("watchfiles.main").isEnabledFor(logging.INFO)


async def test_the_loop_is_not_held_up_and_no_thread_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    real = file_patterns.FilePattern.scan

    def slow(self: file_patterns.FilePattern) -> file_patterns.Scan:
        held.set()
        time.sleep(0.5)
        return real(self)

    monkeypatch.setattr(file_patterns.FilePattern, "scan", slow)
    async with driving(FileEventTrigger(tmp_path)):
        await eventually(held.is_set)
        started = time.monotonic()
        await asyncio.sleep(0)
        assert time.monotonic() - started < 0.3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("file watch")]
