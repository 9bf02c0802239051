"""A loader child may do anything; its file alone pays for it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import psutil
import pytest

from app.domain.specs import LoadResult
from app.processes.dag_processor.loading import load_in_child
from tests.waiting import eventually

GENEROUS = 60.0
GOOD = """
from app.sdk import DAG

with DAG("good"):
    pass
"""


async def load(folder: Path, source: str, *, limit: float = GENEROUS, file: str = "a.py") -> LoadResult:
    (folder / file).write_text(textwrap.dedent(source))
    return await load_in_child(str(folder.resolve()), file, limit=limit)


async def refusal(folder: Path, source: str, *, limit: float = GENEROUS) -> str:
    result = await load(folder, source, limit=limit)
    assert result.error is not None
    assert result.dags == ()
    return f"{result.error.file}:{result.error.line}: {result.error.message}\n{result.error.traceback}"


async def test_a_good_file_is_described(tmp_path: Path) -> None:
    result = await load(tmp_path, GOOD)
    assert result.error is None
    assert [dag.dag_id for dag in result.dags] == ["good"]
    assert result.modules == ("a.py",)


async def test_an_exception_is_located(tmp_path: Path) -> None:
    text = await refusal(tmp_path, "x = 1\nraise RuntimeError('no luck')\n")
    assert text.startswith("a.py:2: RuntimeError: no luck")
    assert "Traceback" in text


EVERY_DESCRIPTOR = """
import os
for descriptor in range(3, 64):
    try:
        {action}
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os; os._exit(7)", "status 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        (EVERY_DESCRIPTOR.format(action=r"os.write(descriptor, b'\xff' * 64)"), "unreadable"),
        (EVERY_DESCRIPTOR.format(action="os.close(descriptor)"), "while importing"),
    ],
)
async def test_a_child_that_breaks_says_how(tmp_path: Path, source: str, said: str) -> None:
    assert said in await refusal(tmp_path, source)


async def test_a_hang_is_ended_with_all_it_started_and_located(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = f"""
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "600"])
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
    """
    text = await refusal(tmp_path, source, limit=8)
    assert "took longer than 8 s" in text
    assert 'a.py", line 5' in text, "the place where it hangs is told"
    started = [int(pid) for pid in pids.read_text().split()]
    await eventually(lambda: not any(map(_lives, started)))


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


async def test_floods_of_output_and_binary_do_no_harm(tmp_path: Path) -> None:
    noise = """
import os
os.write(1, os.urandom(1 << 20))
for _ in range(200):
    os.write(2, b"x" * 65536)
"""
    assert (await load(tmp_path, noise + GOOD)).error is None


async def test_a_description_that_is_too_large_is_refused(tmp_path: Path) -> None:
    source = 'from app.sdk import DAG\nDAG("big", description="x" * (9 << 20))\n'
    assert "larger than a frame may be" in await refusal(tmp_path, source)


async def test_no_secret_and_no_descriptor_reaches_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    source = """
import os, stat
assert not [name for name, value in os.environ.items() if "hunter2" in value], "environment"
sockets = 0
for descriptor in range(64):
    try:
        sockets += stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        pass
raise RuntimeError(f"sockets: {sockets}")
"""
    assert "sockets: 1" in await refusal(tmp_path, source)


async def test_nothing_of_ours_is_left_open(tmp_path: Path) -> None:
    await load(tmp_path, GOOD)
    process = psutil.Process()
    before = process.num_fds()
    for source in (GOOD, "import os; os._exit(1)"):
        await load(tmp_path, source)
    assert process.num_fds() == before


async def test_the_limit_of_a_triggers_arguments_is_the_deployments(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        """
from app.sdk import DAG, Asset, AssetWatcher
from watchers import FileEventTrigger
long = FileEventTrigger("/" + "x" * 3000)
DAG("d", schedule=Asset("a", watchers=[AssetWatcher("w", long)]))
"""
    )
    folder = str(tmp_path.resolve())
    assert (await load_in_child(folder, "p.py", limit=60)).error is None
    refused = await load_in_child(folder, "p.py", limit=60, max_kwargs_bytes=2048)
    assert refused.error is not None
    assert "more than 2048" in refused.error.message
