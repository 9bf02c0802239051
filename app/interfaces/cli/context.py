"""What commands that look into the database have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from app.kernel.errors import TidegateError

if TYPE_CHECKING:
    from app.kernel.settings import Settings
    from app.store.database import Database
    from app.store.listings.paging import Page, Paging
    from app.store.wakeups import Notifier

Result = TypeVar("Result")


class NoDatabase(TidegateError):
    """There is no database to talk to: no embedded one runs under {home} and TIDEGATE_DATABASE_URL is not set. Start
    `tidegate standalone`, or name a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An open database for one command."""

    settings: Settings
    database: Database
    notifier: Notifier


def database_url(settings: Settings) -> str:
    """The URL of the database this command line works on; raises :class:`NoDatabase`."""
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    from app.store.embedded import running_dsn

    running = running_dsn(settings)
    if running is None:
        raise NoDatabase(home=settings.home)
    return running


def with_session(work: Callable[[Session], Awaitable[Result]]) -> Result:
    """Open the database, check its schema, run ``work``, close."""
    from app.kernel.settings import load_settings
    from app.store.database import Database
    from app.store.migrate import check
    from app.store.wakeups import Notifier

    settings = load_settings()
    dsn = database_url(settings)

    async def run() -> Result:
        async with await Database.connect(dsn, pool_size=2, application_name="tidegate-cli") as database:
            await check(dsn)
            async with Notifier.open(database) as notifier:
                return await work(Session(settings=settings, database=database, notifier=notifier))

    return asyncio.run(run())


#: Rows read at once.
PAGE = 1_000


async def every_row(read: Callable[[Paging], Awaitable[Page]]) -> list[Mapping[str, Any]]:
    """All rows of a list, page by page."""
    from app.store.listings.paging import Paging

    found: list[Mapping[str, Any]] = []
    while True:
        page = await read(Paging(limit=PAGE, offset=len(found)))
        found += page.rows
        if len(page.rows) < PAGE:
            return found
