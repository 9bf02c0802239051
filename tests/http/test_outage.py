"""The API while PostgreSQL is away, and after."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from app.kernel.settings import Settings, load_settings
from app.store.embedded import EmbeddedPostgres
from app.store.migrate import upgrade
from tests.http.conftest import PASSWORD
from tests.http.test_serving import HEALTH, serving
from tests.ports import free_port
from tests.waiting import eventually

EVENTS = "/api/v2/assets/events"


@pytest_asyncio.fixture
async def server(home: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server of the test's own."""
    async with EmbeddedPostgres(load_settings(home=home, postgres_fsync=False)) as started:
        await upgrade(started.dsn)
        yield started


@pytest.fixture
def settings(server: EmbeddedPostgres, home: Path) -> Settings:
    """Settings on that server, with a short lease."""
    return load_settings(
        home=home,
        database_url=server.dsn,
        admin_password=PASSWORD,
        api_port=free_port(),
        database_pool_size=4,
        heartbeat_interval=0.3,
    )


@pytest.mark.timeout(180)
async def test_an_outage_is_told_and_passes(settings: Settings, server: EmbeddedPostgres) -> None:
    async with serving(settings) as (host, client):
        token = (await client.post("/auth/token", json={"username": "admin", "password": PASSWORD})).json()
        client.headers["Authorization"] = f"Bearer {token['access_token']}"
        async with host.database.hot() as hot:
            await hot.execute(
                "INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at) "
                "VALUES ('a', 'x://a', 'asset', '{}', true, now())"
            )
        assert (await client.get("/api/v2/dags")).status_code == 200
        first_job = host.job.id
        await server.stop()
        await told(client)

        await server.start()

        async def healthy() -> bool:
            health = (await client.get(HEALTH)).json()
            return bool(health["api_server"]["status"] == "healthy")

        await eventually(healthy, what="the API server works again")
        async with host.database.hot() as hot:
            jobs = await hot.fetch("SELECT id FROM job WHERE ended_at IS NULL")
        assert [job["id"] for job in jobs] == [first_job]
        for _ in range(2 * settings.database_pool_size):
            # Connections of before the outage are found dead and replaced.
            await eventually(lambda: posts(client), what="an event is stored")
        assert (await client.get(EVENTS)).json()["total_entries"] >= 2 * settings.database_pool_size


async def told(client: httpx.AsyncClient) -> None:
    """Every answer says that the database is away."""
    for _ in range(12):
        started = time.monotonic()
        health = await client.get(HEALTH)
        assert (health.status_code, health.json()["metadatabase"]["status"]) == (200, "unhealthy")
        assert time.monotonic() - started < 8
        for answer in (
            await client.get("/api/v2/dags"),
            await client.get("/api/v2/dags/d/dagRuns"),
            await client.post(EVENTS, json={"name": "a"}),
            await client.post("/api/v2/dags/d/dagRuns", json={"logical_date": None}),
            await client.patch("/api/v2/dags/d", json={"is_paused": True}),
        ):
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
    assert (await client.get("/api/v2/version")).status_code == 200


async def posts(client: httpx.AsyncClient) -> bool:
    """Whether an event is stored; a refusal must be one that asks for another try."""
    answer = await client.post(EVENTS, json={"name": "a"})
    assert answer.status_code in {200, 503}, answer.text
    return answer.status_code == 200
