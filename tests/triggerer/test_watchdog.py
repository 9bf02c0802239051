"""Who is blamed for a runner that does not turn."""

from __future__ import annotations

from collections.abc import Sequence

from app.processes.triggerer.slot import Sample
from app.processes.triggerer.watchdog import BlockWatch, ThreadState, place_of, section_of

STUCK = Sample(7, 3, 9)
SLEEPING = ThreadState(state="S", used=1.0)
STOPPED = ThreadState(state="T", used=1.0)


def looks(watch: BlockWatch, states: Sequence[ThreadState | None], *, elapsed: float = 0.1) -> list[float]:
    """Blocked seconds after each look at the same sample, 0 where nobody is blamed."""
    watch.look(STUCK, None, elapsed=elapsed)
    answers = [watch.look(STUCK, state, elapsed=elapsed) for state in states]
    return [0.0 if answer is None else round(answer.seconds, 3) for answer in answers]


def test_a_sleeping_call_is_blamed_from_the_warning_on() -> None:
    assert looks(BlockWatch(warning=0.25), [SLEEPING] * 4) == [0.0, 0.0, 0.3, 0.4]


def test_only_the_first_answer_is_first() -> None:
    watch = BlockWatch(warning=0.1)
    watch.look(STUCK, None, elapsed=0.1)
    answers = [watch.look(STUCK, SLEEPING, elapsed=0.1) for _ in range(3)]
    assert [answer.is_first for answer in answers if answer] == [True, False, False]
    assert {answer.trigger_id for answer in answers if answer} == {7}


def test_a_stopped_process_is_not_blamed_nor_the_moment_it_goes_on() -> None:
    assert looks(BlockWatch(warning=0.25), [STOPPED] * 100 + [SLEEPING]) == [0.0] * 101


def test_a_starved_process_is_not_blamed_a_busy_one_is() -> None:
    starved: list[ThreadState | None] = [ThreadState(state="R", used=1.0)] * 50
    assert looks(BlockWatch(warning=0.25), starved) == [0.0] * 50
    busy: list[ThreadState | None] = [ThreadState(state="R", used=1.0 + n / 10) for n in range(5)]
    assert looks(BlockWatch(warning=0.25), busy)[-1] > 0.25


def test_our_own_pause_counts_for_little() -> None:
    watch = BlockWatch(warning=10)
    watch.look(STUCK, None, elapsed=0.1)
    assert watch.look(STUCK, SLEEPING, elapsed=3600) is None


def test_any_movement_ends_it() -> None:
    watch = BlockWatch(warning=0.1)
    assert looks(watch, [SLEEPING, SLEEPING])[-1] > 0
    assert watch.look(Sample(7, 4, 9), None, elapsed=0.1) is None
    assert watch.look(Sample(7, 4, 9), SLEEPING, elapsed=0.05) is None


def test_a_runner_that_has_not_begun_is_not_watched() -> None:
    watch = BlockWatch(warning=0.1)
    for _ in range(10):
        assert watch.look(Sample(0, 0, 0), SLEEPING, elapsed=0.1) is None


TRACEBACK = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1 in wait
Current thread 0x00007f2 (most recent call first):
  File "/somewhere/pipelines/bad.py", line 12 in run
  File "/x/runner_child_attribution.py", line 40 in send
"""


def test_the_place_is_the_authors_line() -> None:
    section = section_of(TRACEBACK, "0x00007f2")
    assert "threading" not in section
    assert place_of(section) == "/somewhere/pipelines/bad.py:12 in run"
