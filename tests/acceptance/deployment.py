"""A whole deployment for a test: `tidegate standalone` as a child process on a home and a port of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from app.kernel.settings import load_settings
from app.store.embedded import running_dsn
from tests.ports import service_port

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[2]


class HttpError(AssertionError):
    """The API refused; ``status`` and ``body`` say how."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path} answered {status}: {body[:2000]}")
        self.status = status
        self.body = body


class Client:
    """The REST API as a test sees it."""

    def __init__(self, base: str, *, password: str | None = None) -> None:
        self.base = base
        self._password = password
        self._token: str | None = None

    def call(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Any:
        """One request; the decoded answer. Raises :class:`HttpError` for 4xx and 5xx."""
        url = f"{self.base}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        request = urllib.request.Request(url, method=method)
        request.add_header("Accept", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        if self._password is not None and not path.startswith("/auth/"):
            request.add_header("Authorization", f"Bearer {self.token()}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise HttpError(method, path, error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> Any:
        return self.call("POST", path, body, headers=headers)

    def pages(self, path: str, plural: str, **query: Any) -> list[Any]:
        """All entries of a list, page by page."""
        found: list[Any] = []
        while True:
            page = self.get(path, limit=100, offset=len(found), **query)
            found += page[plural]
            if not page[plural] or len(found) >= page["total_entries"]:
                return found

    def count(self, path: str, **query: Any) -> int:
        """How many entries a list has."""
        return int(self.get(path, limit=1, **query)["total_entries"])

    def count_runs(self, dag_id: str, **query: Any) -> int:
        return self.count(f"/api/v2/dags/{quote(dag_id)}/dagRuns", **query)

    def asset_id(self, name: str) -> int:
        """Id of the active asset of this name."""
        found = self.pages("/api/v2/assets", "assets", name_prefix_pattern=name)
        return next(int(asset["id"]) for asset in found if asset["name"] == name)

    def events(self, name: str) -> list[Any]:
        """All events of an asset, oldest first."""
        return self.pages("/api/v2/assets/events", "asset_events", asset_id=self.asset_id(name))

    def triggers(self) -> dict[str, Any]:
        """What is known of each trigger, by the name of its first watcher."""
        found = self.pages("/api/v2/triggers", "triggers")
        return {trigger["watchers"][0]["name"]: trigger for trigger in found if trigger["watchers"]}

    def runs(self, dag_id: str, **query: Any) -> list[Any]:
        return self.pages(f"/api/v2/dags/{quote(dag_id)}/dagRuns", "dag_runs", **query)

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, attempt: int = 1) -> str:
        """The text of an attempt's log."""
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances/{quote(task_id)}/logs/{attempt}"
        return "\n".join(str(line.get("event", line)) for line in self.get(path)["content"])

    def causes(self, dag_id: str, run_id: str) -> list[Any]:
        path = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/upstreamAssetEvents"
        return list(self.get(path)["asset_events"])

    def token(self) -> str:
        """A bearer token of the user, asked for once."""
        if self._token is None:
            answer = self.call("POST", "/auth/token", {"username": "admin", "password": self._password})
            self._token = answer["access_token"]
        return self._token


class Deployment:
    """A running `tidegate standalone`. Use as a context manager."""

    PASSWORD = "acceptance-password"

    def __init__(
        self,
        home: Path,
        dags: Path,
        *,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        log: Path | None = None,
    ) -> None:
        self.home = home
        self.dags = dags
        self.port = port or service_port()
        self.client = Client(f"http://127.0.0.1:{self.port}", password=self.PASSWORD)
        self.log = log or home.parent / f"{home.name}.log"
        self._extra = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the process and its command line are started with."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        return {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "TIDEGATE_HOME": str(self.home),
            "TIDEGATE_DAGS_FOLDER": str(self.dags),
            "TIDEGATE_API_PORT": str(self.port),
            "TIDEGATE_ADMIN_PASSWORD": self.PASSWORD,
            "TIDEGATE_POSTGRES_FSYNC": "false",
            "TIDEGATE_LOG_FORMAT": "json",
            **self._extra,
        }

    def __enter__(self) -> Deployment:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app.main", "standalone"],
                env=self.environment,
                cwd=self.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_for(self.healthy, "a healthy deployment", timeout=120)

    def healthy(self) -> bool:
        """Whether every part says healthy."""
        try:
            health = self.client.get("/api/v2/monitor/health")
        except (OSError, AssertionError):
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, *, number: signal.Signals = signal.SIGTERM, within: float = 30) -> int:
        """End it; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(within)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            raise AssertionError(f"standalone did not end within {within} s\n{self.log_end()}") from None

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one `tidegate` command against this deployment."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "app.main", *arguments],
            env=self.environment,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"tidegate {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done

    @contextmanager
    def another_api_server(self) -> Iterator[Client]:
        """One more API server on the same database, and a client of it."""
        port = service_port()
        dsn = running_dsn(load_settings(home=self.home))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app.main", "api-server", "--port", str(port)],
                env={**self.environment, "TIDEGATE_DATABASE_URL": str(dsn)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        client = Client(f"http://127.0.0.1:{port}", password=self.PASSWORD)
        try:
            self.wait_for(lambda: _answers(client), "another API server")
            yield client
        finally:
            process.terminate()
            process.wait(30)

    def members(self) -> dict[str, int]:
        """Pid of each member process, by command."""
        found = {}
        for pid in _children(self.pid):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "app.main" in words:
                found[words[words.index("app.main") + 1]] = pid
        return found

    def send_signal(self, member: str, number: signal.Signals) -> int:
        """Send a signal to a member process, once it is there; returns its pid."""
        pid = self.wait_for(lambda: self.members().get(member), f"a process {member}")
        assert pid is not None
        os.kill(pid, number)
        return pid

    def wait_for(self, predicate: Callable[[], Result], what: str, *, timeout: float = 60) -> Result:
        """Ask until the answer is true; the log's end is in the failure."""
        end, pause = time.monotonic() + timeout, 0.02
        while True:
            found = predicate()
            if found:
                return found
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(f"standalone ended with {self._process.returncode}\n{self.log_end()}")
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {timeout} s; last answer: {found!r}\n{self.log_end()}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.3)

    def wait_for_runs(self, dag_id: str, count: int, *, state: str = "success", timeout: float = 60) -> list[Any]:
        """All runs of a DAG once there are at least ``count`` and all are in ``state``."""

        def ended() -> list[Any]:
            runs = self.client.runs(dag_id)
            return runs if len(runs) >= count and all(run["state"] == state for run in runs) else []

        return self.wait_for(ended, f"{count} runs of {dag_id} in state {state}", timeout=timeout)

    def wait_for_all_runs(self, dag_id: str, count: int, *, timeout: float) -> None:
        """Wait until a DAG has exactly ``count`` runs, all successful; for many runs, whose list is long."""

        def ended() -> bool:
            counts = self.client.count_runs(dag_id), self.client.count_runs(dag_id, state="success")
            assert counts[0] <= count, f"{counts[0]} runs of {dag_id}, not {count}"
            return counts == (count, count)

        self.wait_for(ended, f"{count} successful runs of {dag_id}", timeout=timeout)

    def wait_for_dags(self, dag_ids: Iterable[str], *, timeout: float = 60) -> None:
        """Wait until the API lists these DAGs."""
        wanted = set(dag_ids)
        self.wait_for(
            lambda: wanted <= {dag["dag_id"] for dag in self.client.pages("/api/v2/dags", "dags")},
            f"DAGs {sorted(wanted)}",
            timeout=timeout,
        )

    def log_end(self, lines: int = 60) -> str:
        """The last lines of what the processes logged."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def _answers(client: Client) -> bool:
    try:
        return bool(client.get("/api/v2/version"))
    except (OSError, HttpError):
        return False


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found
