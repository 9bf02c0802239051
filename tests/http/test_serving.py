"""The API server over a real socket: health, an outage of the database, its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from app.interfaces.http.process import AddressTaken, serve
from app.kernel.settings import Settings, load_settings
from app.processes.host import Host, open_host
from tests.http.conftest import PASSWORD
from tests.ports import free_port
from tests.triggerer.world import World
from tests.waiting import eventually

HEALTH = "/api/v2/monitor/health"


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[Host, httpx.AsyncClient]]:
    """A server and a client of it."""
    assert settings.database_url is not None
    stop = asyncio.Event()
    dsn = settings.database_url.get_secret_value()
    base = f"http://127.0.0.1:{settings.api_port}"
    async with open_host(settings, dsn, job_type="api_server", stop=stop) as host, asyncio.TaskGroup() as group:
        server = group.create_task(serve(host))
        async with httpx.AsyncClient(base_url=base, timeout=30) as client:
            await eventually(lambda: answers(client), what="the server answers")
            try:
                yield host, client
            finally:
                stop.set()
                await server


async def answers(client: httpx.AsyncClient) -> bool:
    """Whether the server takes requests."""
    try:
        return (await client.get("/api/v2/version")).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def settings(database_url: str, home: object) -> Settings:
    """Settings with a port."""
    return load_settings(
        home=home, database_url=database_url, admin_password=PASSWORD, api_port=free_port(), database_pool_size=4
    )


async def test_health_names_every_kind_of_process(settings: Settings, world: World) -> None:
    async with serving(settings) as (_, client):
        health = (await client.get(HEALTH)).json()
        assert health["metadatabase"] == {"status": "healthy"}
        assert health["api_server"]["status"] == "healthy"
        assert health["api_server"]["latest_api_server_heartbeat"] is not None
        for name in ("scheduler", "triggerer", "dag_processor"):
            assert (health[name]["status"], health[name][f"latest_{name}_heartbeat"]) == (None, None)
        await world.job("scheduler")
        await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day' WHERE job_type = 'scheduler'")
        dead = await world.job("triggerer")
        await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day' WHERE id = $1", dead)
        await world.job("triggerer")
        health = (await client.get(HEALTH)).json()
        assert (health["scheduler"]["status"], health["triggerer"]["status"]) == ("unhealthy", "healthy")
        [process] = health["triggerer"]["processes"]
        assert (process["job_type"], process["status"], process["held"]) == ("triggerer", "healthy", 0)
        await world.value("UPDATE trigger SET queue = 'q' WHERE id = $1", await world.trigger())
        health = (await client.get(HEALTH)).json()
        assert health["triggerer"]["unserved"] == [{"queue": "q", "team_name": None, "count": 1}]


async def test_a_real_client_posts_and_a_flood_of_bytes_is_refused(settings: Settings, world: World) -> None:
    async with serving(settings) as (_, client):
        token = (await client.post("/auth/token", json={"username": "admin", "password": PASSWORD})).json()
        client.headers["Authorization"] = f"Bearer {token['access_token']}"
        asset = await world.asset()
        event = await client.post("/api/v2/assets/events", json={"asset_id": asset})
        assert event.status_code == 200
        flood = await client.post("/api/v2/assets/events", content=b"x" * 64 * 2**20)
        assert (flood.status_code, f"has {64 * 2**20} bytes; the limit is" in flood.text) == (413, True)
        assert (await client.get("/api/v2/assets/events")).json()["total_entries"] == 1


async def test_a_second_server_on_the_port_is_told(settings: Settings) -> None:
    async with serving(settings) as (host, _):
        with pytest.raises(AddressTaken, match=str(settings.api_port)):
            await serve(host)


async def test_its_job_ends_with_it(settings: Settings, world: World) -> None:
    alive = "SELECT count(*) FROM job WHERE ended_at IS NULL"
    before = await world.value(alive)
    async with serving(settings):
        assert await world.value(alive) == before + 1
    assert await world.value(alive) == before


async def test_health_does_not_wait_for_busy_connections(settings: Settings) -> None:
    """The database works, so that is what it says; that it says so when it does not is in ``test_frozen``."""
    async with serving(settings) as (host, client), AsyncExitStack() as stack:
        for _ in range(settings.database_pool_size):
            await stack.enter_async_context(host.database.hot())
        started = time.monotonic()
        answer = await client.get(HEALTH)
        assert (answer.status_code, answer.json()["metadatabase"]["status"]) == (200, "healthy")
        assert time.monotonic() - started < 8, "at once on an idle machine, less than the pool's ten seconds"
