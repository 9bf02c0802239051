"""Looking at the folder, and reading its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.processes.dag_processor.folder import Stamp, read_sources, scan_folder, shown_path
from app.processes.dag_processor.ignoring import IgnoreRules


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x = 1\n")


@pytest.mark.parametrize(
    ("patterns", "path", "ignored"),
    [
        (["*.tmp.py"], "deep/a.tmp.py", True),
        (["/a.py"], "a.py", True),
        (["/a.py"], "deep/a.py", False),
        (["build/"], "x/build/", True),
        (["build/"], "build.py", False),
        (["*.py", "!keep.py"], "keep.py", False),
        (["# comment", "", "  "], "a.py", False),
        (["**/gen_?.py"], "a/b/gen_1.py", True),
        ([], "a.py", False),
    ],
)
def test_patterns(patterns: list[str], path: str, ignored: bool) -> None:
    rules, faults = IgnoreRules().within("", patterns)
    assert (rules.ignores(path), faults) == (ignored, [])


def test_a_deeper_file_decides_over_a_higher_one() -> None:
    rules, _ = IgnoreRules().within("", ["*_x.py"])
    rules, _ = rules.within("sub/", ["!a_x.py"])
    assert [rules.ignores(path) for path in ("sub/a_x.py", "sub/b_x.py")] == [False, True]


def test_a_link_into_itself_ends(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "sub/b.py")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "sub" / "again").symlink_to(tmp_path / "sub")
    assert set(scan_folder(tmp_path).files) == {"a.py", "sub/b.py"}


def test_links_to_files_and_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/one.py", "elsewhere/more/two.py", "dags/a.py")
    (tmp_path / "dags/one.py").symlink_to(tmp_path / "elsewhere/one.py")
    (tmp_path / "dags/more").symlink_to(tmp_path / "elsewhere/more")
    assert set(scan_folder(tmp_path / "dags").files) == {"a.py", "one.py", "more/two.py"}


def test_a_folder_that_cannot_be_listed_says_so_and_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.py", "closed/b.py", "closed_too.py")
    listing = os.scandir

    def refusing(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr("app.processes.dag_processor.folder.os.scandir", refusing)
    scan = scan_folder(tmp_path)
    assert set(scan.files) == {"a.py", "closed_too.py"}
    assert "Permission denied" in scan.faults["closed"].message
    assert scan.holds("closed/b.py"), "nothing is known about it, so it is not gone"
    assert not scan.holds("b.py")


def test_every_name_can_be_shown() -> None:
    assert shown_path("plain/ünï.py") == "plain/ünï.py"
    assert shown_path(os.fsdecode(b"bad\xff.py")) == "bad\\xff.py"


def test_a_replaced_file_has_another_stamp_even_with_the_same_times(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py")
    status = (tmp_path / "a.py").stat()
    before = Stamp.of(tmp_path / "a.py")
    os.utime(tmp_path / "b.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "b.py").rename(tmp_path / "a.py")
    assert Stamp.of(tmp_path / "a.py") != before


def test_reading_tells_gone_from_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.py", "b.py")
    reading = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name == "b.py":
            raise PermissionError(13, "Permission denied")
        return reading(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    sources, stamps = read_sources(tmp_path, ["a.py", "b.py", "c.py"])
    assert set(sources) == {"a.py"}
    assert {path: stamp is not None for path, stamp in stamps.items()} == {"a.py": True, "b.py": True, "c.py": False}
