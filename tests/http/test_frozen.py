"""The API while PostgreSQL stands still: it accepts connections (the kernel does) and answers nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from app.kernel.settings import Settings
from app.store.embedded import EmbeddedPostgres
from tests.http.conftest import PASSWORD
from tests.http.test_outage import EVENTS, server, settings
from tests.http.test_serving import HEALTH, serving
from tests.waiting import eventually

__all__ = ["server", "settings"]


@contextmanager
def frozen(postgres: EmbeddedPostgres) -> Iterator[None]:
    """All processes of the server stopped; they go on at the end of the block."""
    assert postgres.pid is not None
    postmaster = psutil.Process(postgres.pid)
    postmaster.suspend()
    stopped = [postmaster, *postmaster.children()]
    for process in stopped[1:]:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            os.kill(process.pid, signal.SIGCONT)


@pytest.mark.timeout(180)
async def test_a_frozen_database_is_told_in_time(settings: Settings, server: EmbeddedPostgres) -> None:
    async with serving(settings) as (host, client):
        token = (await client.post("/auth/token", json={"username": "admin", "password": PASSWORD})).json()
        client.headers["Authorization"] = f"Bearer {token['access_token']}"
        async with host.database.hot() as hot:
            await hot.execute(
                "INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at) "
                "SELECT 'a' || n, 'x://a' || n, 'asset', '{}', true, now() FROM generate_series(0, 9) n"
            )
        assert (await client.post(EVENTS, json={"name": "a0"})).status_code == 200
        assert (await client.get(HEALTH)).json()["metadatabase"]["status"] == "healthy"
        with frozen(server):
            started = time.monotonic()
            # More of them than the pool has connections.
            posts = [
                asyncio.create_task(
                    client.post(EVENTS, json={"name": f"a{n}"}, headers={"Idempotency-Key": f"k{n}"}, timeout=60)
                )
                for n in range(10)
            ]
            for _ in range(3):
                asked = time.monotonic()
                health = await client.get(HEALTH)
                assert (health.status_code, health.json()["metadatabase"]["status"]) == (200, "unhealthy")
                assert time.monotonic() - asked < 6  # 3 s are promised; the rest is room for a busy machine
            for answer in await asyncio.gather(*posts):
                assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
                assert "may still be stored" in answer.json()["detail"]
                assert "Idempotency-Key" in answer.json()["detail"]
            assert time.monotonic() - started < 20

        async def stored() -> bool:
            again = [await _again(client, n) for n in range(10)]
            return all(answer.status_code == 200 for answer in again)

        await eventually(stored, what="the events are stored")
        assert (await client.get(HEALTH)).json()["metadatabase"]["status"] == "healthy"
        # Each once: what was given up and its repetition are one event.
        assert (await client.get(EVENTS)).json()["total_entries"] == 11


async def _again(client: httpx.AsyncClient, number: int) -> httpx.Response:
    return await client.post(EVENTS, json={"name": f"a{number}"}, headers={"Idempotency-Key": f"k{number}"}, timeout=60)
