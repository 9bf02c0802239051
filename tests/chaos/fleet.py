"""A deployment of many processes on one database, and what its database says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
from cryptography.fernet import Fernet

from app.kernel import crash_points
from tests.acceptance.deployment import Client
from tests.chaos.nodes import ROOT, Node
from tests.chaos.points import Points
from tests.ports import service_port
from tests.waiting import eventually

PASSWORD = "chaos-password"
#: Longest for processes to come up on a busy machine, in seconds.
START_LIMIT = 120.0


class Fleet:
    """Any number of processes of each kind. Each has a database role of its own, so that its writes can be told apart.

    Use as an asynchronous context manager; a failure within gets the timeline and the place of the logs.
    """

    def __init__(self, folder: Path, dsn: str, *, seed: int, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.dsn = dsn
        self.seed = seed
        self.pipelines = folder / "pipelines"
        self.points = Points(folder / "points")
        self.nodes: dict[str, Node] = {}
        self.clients: dict[str, Client] = {}
        self.began = time.monotonic()
        self.timeline: list[str] = []
        self._extra = dict(environment or {})
        self._prefix = f"chaos_{uuid4().hex[:8]}"
        self._roles: list[str] = []
        self._pool: asyncpg.Pool[Any] | None = None
        self._common = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")},
            "PYTHONPATH": str(ROOT),
            "TIDEGATE_HOME": str(folder / "home"),
            "TIDEGATE_DAGS_FOLDER": str(self.pipelines),
            "TIDEGATE_ENCRYPTION_KEY": Fernet.generate_key().decode(),
            "TIDEGATE_TOKEN_SECRET": "a secret of this test, long enough",
            "TIDEGATE_ADMIN_PASSWORD": PASSWORD,
            "TIDEGATE_LOG_FORMAT": "json",
            # A test has many processes and its server has few connections.
            "TIDEGATE_DATABASE_POOL_SIZE": "4",
            crash_points.VARIABLE: str(self.points.folder),
            **self._extra,
        }

    async def __aenter__(self) -> Self:
        for each in (self.pipelines, self.points.folder, self.folder / "home"):
            each.mkdir(parents=True, exist_ok=True)
        self._pool = await asyncpg.create_pool(self.dsn, min_size=0, max_size=3, command_timeout=30)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.told())
        try:
            await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes.values()))
        finally:
            for node in self.nodes.values():
                if node.is_running:
                    node.kill()
            (self.folder / "timeline.txt").write_text("\n".join(self.timeline))
            for role in self._roles:
                await self.fetch(f'DROP ROLE IF EXISTS "{role}"')
            assert self._pool is not None
            await self._pool.close()

    def note(self, text: str) -> None:
        """Add to the timeline."""
        self.timeline.append(f"{time.monotonic() - self.began:9.3f}  {text}")

    def told(self, lines: int = 80) -> str:
        """What a person needs to look into a failure."""
        last = "\n".join(self.timeline[-lines:])
        return (
            f"seed {self.seed} (set TIDEGATE_TEST_SEED={self.seed} to repeat); logs in {self.folder}\n"
            f"timeline, last {lines}:\n{last}"
        )

    # ------------------------------------------------------------------------------------------------ processes

    async def add(self, kind: str, count: int = 1, *, dsn: str | None = None, **environment: str) -> list[Node]:
        """Start ``count`` more processes of a kind; :meth:`until_up` waits for them. ``dsn``: another way there."""
        added = []
        for _ in range(count):
            number = sum(node.kind == kind for node in self.nodes.values()) + 1
            name = f"{kind}-{number}"
            url = await self._role_url(name, dsn or self.dsn)
            arguments: tuple[str, ...] = ()
            if kind == "api-server":
                port = service_port()
                arguments = ("--port", str(port))
                self.clients[name] = Client(f"http://127.0.0.1:{port}", password=PASSWORD)
            node = self.nodes[name] = Node(
                name,
                kind=kind,
                arguments=arguments,
                environment={**self._common, "TIDEGATE_DATABASE_URL": url, **environment},
                folder=self.folder,
                note=self.note,
            )
            node.start()
            added.append(node)
        return added

    async def start(self, **counts: int) -> None:
        """Start processes of each kind and wait until they are at work."""
        for kind, count in counts.items():
            await self.add(kind.replace("_", "-"), count)
        await self.until_up()

    async def until_up(self, *nodes: Node) -> None:
        """Until these (default: all) are registered."""
        waited = nodes or tuple(self.nodes.values())

        async def up() -> bool:
            registered = {row["pid"] for row in await self.fetch("SELECT pid FROM job WHERE ended_at IS NULL")}
            for node in waited:
                assert node.is_running, f"{node.name} ended\n{node.log_end()}"
            return {node.pid for node in waited} <= registered

        await eventually(up, START_LIMIT, what=f"{', '.join(node.name for node in waited)} registered")

    async def until_dags(self, dag_ids: Iterable[str]) -> None:
        """Until these DAGs have a version, and each wanted trigger an owner."""
        wanted = set(dag_ids)

        async def known() -> bool:
            rows = await self.fetch("SELECT dag_id FROM dag WHERE is_active AND current_version_id IS NOT NULL")
            return wanted <= {row["dag_id"] for row in rows}

        await eventually(known, START_LIMIT, what=f"DAGs {sorted(wanted)}")

        async def owned() -> bool:
            return not await self.value("SELECT count(*) FROM trigger WHERE wanted AND status <> 'running'")

        await eventually(owned, START_LIMIT, what="an owner for each trigger")

    def node_of(self, pid: int) -> Node:
        """The process with this pid."""
        return next(node for node in self.nodes.values() if node.is_running and node.pid == pid)

    def of_kind(self, kind: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind == kind]

    # ------------------------------------------------------------------------------------------------- database

    async def fetch(self, query: str, *values: Any) -> list[asyncpg.Record]:
        """Rows of a query, once the database answers."""
        assert self._pool is not None
        return list(await self._pool.fetch(query, *values))

    async def execute(self, script: str) -> None:
        """Several statements without values."""
        assert self._pool is not None
        await self._pool.execute(script)

    async def value(self, query: str, *values: Any) -> Any:
        """The first value of the first row."""
        rows = await self.fetch(query, *values)
        return rows[0][0] if rows else None

    async def owner_pid(self, watcher: str) -> int | None:
        """Pid of the process that runs the watcher's trigger now."""
        pid: int | None = await self.value(
            """
            SELECT j.pid FROM trigger t JOIN asset_watcher w ON w.trigger_id = t.id JOIN job j ON j.id = t.owner_id
            WHERE w.name = $1 AND t.status = 'running' AND j.ended_at IS NULL
            """,
            watcher,
        )
        return pid

    async def owner(self, watcher: str, *, but: Iterable[Node] = ()) -> Node:
        """The living process that runs the watcher's trigger, once there is one."""
        excluded = {node.name for node in but}

        async def found() -> Node | None:
            pid = await self.owner_pid(watcher)
            running = [node for node in self.nodes.values() if node.is_running and node.pid == pid]
            return running[0] if running and running[0].name not in excluded else None

        node = await eventually(found, 60, what=f"an owner of {watcher}")
        assert node is not None
        return node

    def role(self, node: Node | str) -> str:
        """The database role of a process."""
        return f"{self._prefix}_{node if isinstance(node, str) else node.name}"

    async def _role_url(self, name: str, dsn: str) -> str:
        role = self.role(name)
        await self.fetch(f"CREATE ROLE \"{role}\" SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        self._roles.append(role)
        parts = urlsplit(dsn)
        place = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{role}:{PASSWORD}@{place}"))
