"""Errors, clock, ids, pauses, log lines, the home folder."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from app.kernel.backoff import Backoff
from app.kernel.clock import ManualClock, SystemClock
from app.kernel.errors import HomeInUse, HomeNotWritable, WrongSchema
from app.kernel.home import HomeLock, prepare_home, stored_secret
from app.kernel.ids import short_suffix
from app.kernel.settings import LogFormat, LogLevel
from app.kernel.telemetry import LimitedLog, configure_logging, get_logger


class TestErrors:
    def test_docstring_is_the_message_and_names_the_remedy(self) -> None:
        error = WrongSchema(found="0001", needed="0002")
        assert str(error) == (
            "The database is at schema revision 0001, this version needs 0002. Run `tidegate db migrate`."
        )
        assert error.ids["needed"] == "0002"

    def test_a_missing_id_does_not_hide_the_error(self) -> None:
        assert "<needed>" in str(WrongSchema(found="0001"))

    def test_survives_pickling(self) -> None:
        copy = pickle.loads(pickle.dumps(WrongSchema(found="1", needed="2")))
        assert (str(copy), copy.ids) == (str(WrongSchema(found="1", needed="2")), {"found": "1", "needed": "2"})


class TestClock:
    def test_system_clock_is_aware(self) -> None:
        assert SystemClock().now().tzinfo is UTC

    async def test_sleepers_wake_in_order_at_their_moments(self) -> None:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        woken: list[tuple[str, float]] = []

        async def sleeper(name: str, *pauses: float) -> None:
            for pause in pauses:
                await clock.sleep(pause)
                woken.append((name, clock.monotonic()))

        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper("a", 2, 2))
            group.create_task(sleeper("b", 3))
            while clock.sleeping < 2:
                await asyncio.sleep(0)
            await clock.advance(5)
        assert woken == [("a", 2), ("b", 3), ("a", 4)]
        assert clock.now() == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)

    def test_a_naive_start_is_refused(self) -> None:
        with pytest.raises(ValueError, match="aware"):
            ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001


class TestIds:
    def test_suffix(self) -> None:
        assert short_suffix().isalnum()
        assert len(short_suffix()) == 8
        assert short_suffix() != short_suffix()


class TestBackoff:
    @given(attempt=st.integers(1, 10_000), seed=st.integers())
    def test_stays_within_its_limits(self, attempt: int, seed: int) -> None:
        pause = Backoff(first=1, longest=300).delay(attempt, source=random.Random(seed))
        assert 1 <= pause <= 300

    @given(seed=st.integers())
    def test_grows(self, seed: int) -> None:
        backoff = Backoff(first=1, longest=300)
        early = backoff.delay(1, source=random.Random(seed))
        late = backoff.delay(9, source=random.Random(seed))
        assert early <= 1.5
        assert late >= 150

    def test_is_decided_by_its_source(self) -> None:
        backoff = Backoff(first=1, longest=300)
        assert backoff.delay(5, source=random.Random(7)) == backoff.delay(5, source=random.Random(7))
        assert backoff.delay(5, source=random.Random(7)) != backoff.delay(5, source=random.Random(8))

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ValueError, match="growing"):
            Backoff(first=10, longest=1)
        with pytest.raises(ValueError, match="from 1"):
            Backoff(first=1, longest=2).delay(0)


@pytest.fixture
def restored_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.mark.usefixtures("restored_logging")
class TestTelemetry:
    def test_json_lines_of_ours_and_of_libraries(self) -> None:
        output = io.StringIO()
        configure_logging(style=LogFormat.JSON, stream=output)
        get_logger("scheduler", job_id=3).info("run made", action="run_created", run_id="r")
        logging.getLogger("somelibrary").warning("odd %s", "thing")
        get_logger("scheduler").debug("not told")
        ours, theirs = [json.loads(line) for line in output.getvalue().splitlines()]
        assert (ours["event"], ours["component"], ours["job_id"], ours["run_id"], ours["level"]) == (
            "run made", "scheduler", 3, "r", "info",
        )  # fmt: skip
        assert (theirs["event"], theirs["component"], theirs["level"]) == ("odd thing", "somelibrary", "warning")

    def test_a_logger_from_before_the_set_up_follows_it(self) -> None:
        early = get_logger("scheduler", job_id=3)
        output = io.StringIO()
        configure_logging(level=LogLevel.WARNING, style=LogFormat.JSON, stream=output)
        early.info("not told")
        early.warning("told", action="told")
        assert [json.loads(line)["event"] for line in output.getvalue().splitlines()] == ["told"]

    def test_console_shows_an_exception(self) -> None:
        output = io.StringIO()
        configure_logging(stream=output)
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            get_logger("x").exception("it failed", action="failed")
        assert "it failed" in output.getvalue()
        assert "RuntimeError: broken" in output.getvalue()

    def test_a_repeated_failure_is_no_flood(self) -> None:
        output = io.StringIO()
        configure_logging(style=LogFormat.JSON, stream=output)
        now = [0.0]
        log = LimitedLog(get_logger("kafka"), every=30, monotonic=lambda: now[0])
        for second in range(100):
            now[0] = float(second)
            log.failed("broker", "broker away", action="broker_failed")
        assert log.recovered("broker", "broker back", action="broker_recovered")
        assert not log.recovered("broker", "broker back")
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
        assert [line["event"] for line in lines] == ["broker away"] * 4 + ["broker back"]
        assert [line.get("not_told") for line in lines[:4]] == [None, 29, 29, 29]
        assert lines[-1]["failures"] == 100

    def test_only_so_many_troubles_are_remembered(self) -> None:
        configure_logging(stream=io.StringIO())
        log = LimitedLog(get_logger("kafka"), keys=2)
        assert log.failed("a", "x")
        assert log.failed("b", "x")
        assert log.failed("c", "x")
        assert not log.failed("c", "x")
        assert not log.recovered("a", "x")


class TestHome:
    def test_lock_names_the_holder_and_ends_with_it(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path; from app.kernel.home import HomeLock;"
            "lock = HomeLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(HomeInUse) as caught:
                HomeLock(tmp_path).acquire()
            assert str(holder.pid) in str(caught.value)
            holder.kill()
        with HomeLock(tmp_path):
            pass

    def test_a_file_in_the_way_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "home").write_text("")
        with pytest.raises(HomeNotWritable, match="TIDEGATE_HOME"):
            prepare_home(tmp_path / "home" / "below")

    def test_secret_is_made_once_and_private(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "secret"
        first, made = stored_secret(path)
        again, made_again = stored_secret(path)
        assert (made, made_again, again) == (True, False, first)
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(path.parent.iterdir()) == [path]
