"""The raw commit rate of a PostgreSQL: the smallest transactions that write, from a client that does nothing else."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from tests.benchmarks.figures import Rate, Section, Spread

CONNECTIONS = (1, 8, 32)


async def measure_commits(dsn: str, *, connections: int, seconds: float) -> Rate:
    """Single-row inserts committed a second over so many connections at once."""
    opened = [await asyncpg.connect(dsn) for _ in range(connections)]
    times: list[float] = []
    try:
        await opened[0].execute("CREATE TABLE IF NOT EXISTS raw_commits (n bigint)")
        statements = [await connection.prepare("INSERT INTO raw_commits VALUES ($1)") for connection in opened]
        start = time.perf_counter()
        end = start + seconds

        async def insert(number: int) -> None:
            while (began := time.perf_counter()) < end:
                await statements[number].fetch(len(times))
                times.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(insert(number) for number in range(connections)))
        took = time.perf_counter() - start
        await opened[0].execute("DROP TABLE raw_commits")
    finally:
        for connection in opened:
            await connection.close()
    name = f"{connections} connection{'s' if connections > 1 else ''}"
    return Rate(name=name, per_second=len(times) / took, spread=Spread.of("commit", times))


async def measure(dsn: str, *, seconds: float) -> Section:
    """The raw commit rate at each number of connections."""
    rows = [await measure_commits(dsn, connections=count, seconds=seconds) for count in CONNECTIONS]
    connection = await asyncpg.connect(dsn)
    try:
        fsync = await connection.fetchval("SELECT current_setting('fsync')")
        version = await connection.fetchval("SELECT current_setting('server_version')")
    finally:
        await connection.close()
    return Section(
        title="Raw commits of the same PostgreSQL",
        rows=tuple(rows),
        notes=(f"PostgreSQL {version}, fsync {fsync}; one single-row INSERT each, prepared, on asyncpg alone",),
    )
