"""Which files are read, and when: the ledger against a model of a folder."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.processes.dag_processor.folder import Stamp
from app.processes.dag_processor.ledger import FileLedger

STILL = 0.5
PATHS = ("a.py", "b.py", "c.py")
HELPER = "lib/h.py"


def stamp(number: int, *, changed: float = 0.0) -> Stamp:
    return Stamp(modified=number, changed=int(changed * 1e9), size=number, inode=1)


class Folder(RuleBasedStateMachine):
    """Files change, are observed and read; ``seen`` is the content each was last read with."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = FileLedger(still=STILL)
        self.now = 100.0
        self.counter = 0
        self.files: dict[str, Stamp] = {}
        self.helper: Stamp | None = None
        self.busy: dict[str, dict[str, Stamp | None]] = {}
        self.seen: dict[str, dict[str, Stamp | None]] = {}
        self.changed_at: dict[str, float] = {}
        #: Files of which it is known that they load the helper.
        self.loaded_it: set[str] = set()

    def content(self, path: str) -> dict[str, Stamp | None]:
        return {path: self.files[path], HELPER: self.helper}

    @rule(path=st.sampled_from(PATHS))
    def write(self, path: str) -> None:
        self.counter += 1
        self.files[path] = stamp(self.counter, changed=self.now)
        self.changed_at[path] = self.now

    @rule()
    def write_helper(self) -> None:
        self.counter += 1
        self.helper = stamp(self.counter, changed=self.now)
        for path in self.files.keys() & self.loaded_it:
            self.changed_at[path] = self.now

    @rule(path=st.sampled_from(PATHS))
    def remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.seen.pop(path, None)
        self.loaded_it.discard(path)

    @rule(seconds=st.sampled_from([0.1, 0.6, 5.0]))
    def wait(self, seconds: float) -> None:
        self.observe()
        self.now += seconds

    @rule()
    def observe(self) -> None:
        modules = {HELPER: self.helper}
        self.ledger.observe(self.files, modules, now=self.now, wall=self.now)

    @precondition(lambda self: self.ledger.due(now=self.now))
    @rule()
    def begin(self) -> None:
        self.observe()
        for path in self.ledger.due(now=self.now)[:1]:
            assert self.now - self.changed_at[path] >= STILL, "it was not still yet"
            self.ledger.begin(path)
            self.busy[path] = self.content(path)

    @precondition(lambda self: self.busy)
    @rule(refused=st.booleans())
    def finish(self, refused: bool) -> None:
        path, before = next(iter(self.busy.items()))
        del self.busy[path]
        if path not in self.files:
            self.ledger.finish(path, stamps=before, digest="gone", refused=refused)
            return
        self.loaded_it.add(path)
        if self.content(path) != before:
            self.ledger.abandon(path, (HELPER,), now=self.now)
            self.changed_at[path] = self.now
        else:
            self.ledger.finish(path, stamps=before, digest=str(before), refused=refused)
            self.seen[path] = before

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Whatever was not read as it is now is due once it has been still, and next_due says so."""
        self.observe()
        later = self.now + STILL
        due = set(self.ledger.due(now=later))
        for path in self.files.keys() - self.busy.keys():
            if self.seen.get(path) != self.content(path):
                assert path in due
        moment = self.ledger.next_due()
        assert (moment is not None) == bool(due)
        assert moment is None or moment <= later


Folder.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestFolder = Folder.TestCase


def test_a_refused_file_is_read_again_when_something_else_changes() -> None:
    ledger = FileLedger(still=STILL)
    files = {"a.py": stamp(1), "b.py": stamp(2)}
    ledger.observe(files, {}, now=100, wall=1e6)
    for path in ledger.due(now=100):
        ledger.begin(path)
    ledger.finish("a.py", stamps={"a.py": stamp(1)}, digest="a", refused=True)
    assert ledger.due(now=100) == []
    ledger.finish("b.py", stamps={"b.py": stamp(2)}, digest="b", refused=False)
    assert ledger.due(now=100) == ["a.py"]
    ledger.begin("a.py")
    ledger.finish("a.py", stamps={"a.py": stamp(1)}, digest="a", refused=True)
    assert ledger.due(now=100) == [], "the same refusal again is no change"


def test_a_file_written_long_ago_is_read_at_once() -> None:
    ledger = FileLedger(still=STILL)
    ledger.observe({"old.py": stamp(1, changed=10), "new.py": stamp(2, changed=99.9)}, {}, now=5, wall=100)
    assert ledger.due(now=5) == ["old.py"]
    assert ledger.due(now=5.45) == ["old.py", "new.py"]
