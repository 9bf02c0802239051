"""Events posted by callers over HTTP: idempotent, and committed in groups so that many callers share one commit."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from app.kernel.crash_points import CrashPoint, reach
from app.kernel.errors import AlreadyExists, NotFound
from app.services.recording import record
from app.store import events as statements
from app.store.database import Database, HotConnection
from app.store.errors import ConstraintViolated, DatabaseUnavailable, DataRefused
from app.store.events import EventRow, IdempotencyRow
from app.store.wakeups import Notifier

#: Most posts stored in one transaction.
GROUP_LIMIT = 500


class IdempotencyConflict(AlreadyExists):
    """The Idempotency-Key {key} was used before with another body. Repeat the first request, or choose another key."""


class AssetNotFound(NotFound):
    """There is no active asset {asset_id}."""


class NotStoredYet(DatabaseUnavailable):
    """The database did not confirm the event in time. It may still be stored; repeating the request is safe with the
    same Idempotency-Key, and without one may make a second event."""


class NewPost(msgspec.Struct, frozen=True, kw_only=True):
    """A request to make an event. ``extra`` is JSON text of an object; ``idempotency_key`` None: always a new event."""

    asset_id: int
    extra: str
    idempotency_key: str | None = None
    body_digest: bytes = b""


class PostedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The event of a request. ``created`` is false for the answer to a repeated request."""

    event_id: int
    created: bool
    timestamp: datetime | None = None


Answer = PostedEvent | IdempotencyConflict | AssetNotFound | DataRefused


def body_digest(asset_id: int, extra: Mapping[str, Any]) -> bytes:
    """What two requests must agree in to be the same: SHA-256 over the asset and its extra, keys sorted."""
    text = json.dumps([asset_id, extra], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def posted_extra(extra: Mapping[str, Any]) -> str:
    """The JSON text of a posted event's extra, marked as the field marks it."""
    return json.dumps({**extra, "from_rest_api": True}, allow_nan=False, separators=(",", ":"))


async def post_event(
    database: Database,
    notifier: Notifier,
    *,
    asset_id: int,
    extra: Mapping[str, Any],
    idempotency_key: str | None = None,
    digest: bytes | None = None,
) -> PostedEvent:
    """Make one event of the asset, in a transaction of its own.

    With an ``idempotency_key`` the same request again answers the first event. ``digest`` is what makes requests the
    same, by default asset and extra. Raises :class:`IdempotencyConflict` for another body under the same key,
    :class:`AssetNotFound`, :class:`app.store.errors.DataRefused`, :class:`app.store.errors.DatabaseUnavailable`.
    """
    post = _new_post(asset_id, extra, idempotency_key=idempotency_key, digest=digest)
    answer = (await _store_posts(database, [post]))[0]
    if isinstance(answer, PostedEvent):
        if answer.created:
            notifier.poke("demand")
        return answer
    raise answer


def _new_post(asset_id: int, extra: Mapping[str, Any], *, idempotency_key: str | None, digest: bytes | None) -> NewPost:
    return NewPost(
        asset_id=asset_id,
        extra=posted_extra(extra),
        idempotency_key=idempotency_key,
        body_digest=digest or (body_digest(asset_id, extra) if idempotency_key is not None else b""),
    )


class EventPoster:
    """Posts events of many concurrent callers in shared transactions: whatever waits while one commits is the next."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._waiting: list[tuple[NewPost, asyncio.Future[PostedEvent]]] = []
        self._wake = asyncio.Event()
        self._is_closing = False

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, notifier: Notifier) -> AsyncIterator[EventPoster]:
        """A poster whose storing task lives as long as the block; what waits at its end is still stored, once."""
        poster = cls(database, notifier)
        storing = asyncio.create_task(poster._store_for_ever(), name="event-poster")
        try:
            yield poster
        finally:
            poster._is_closing = True
            poster._wake.set()
            # Never cancelled: what is being stored would be stored again, or its callers never hear of it.
            await asyncio.shield(storing)

    async def post(
        self,
        *,
        asset_id: int,
        extra: Mapping[str, Any],
        idempotency_key: str | None = None,
        digest: bytes | None = None,
    ) -> PostedEvent:
        """Like :func:`post_event`. A caller that gives up does not undo the event."""
        post = _new_post(asset_id, extra, idempotency_key=idempotency_key, digest=digest)
        answer: asyncio.Future[PostedEvent] = asyncio.get_running_loop().create_future()
        self._waiting.append((post, answer))
        self._wake.set()
        return await answer

    async def _store_for_ever(self) -> None:
        while not self._is_closing:
            await self._wake.wait()
            self._wake.clear()
            await self._store_waiting()

    async def _store_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:GROUP_LIMIT], self._waiting[GROUP_LIMIT:]
            answers: Sequence[Answer | BaseException]
            try:
                answers = await _store_posts(self._database, [post for post, _ in group])
                reach(CrashPoint.POSTED)
            except Exception as error:  # noqa: BLE001 — each caller is told; the poster serves the others
                answers = [error] * len(group)
            self._answer(group, answers)

    def _answer(
        self, group: Sequence[tuple[NewPost, asyncio.Future[PostedEvent]]], answers: Sequence[Answer | BaseException]
    ) -> None:
        created = False
        for (_, future), answer in zip(group, answers, strict=True):
            created = created or (isinstance(answer, PostedEvent) and answer.created)
            if future.done():
                continue
            if isinstance(answer, PostedEvent):
                future.set_result(answer)
            else:
                future.set_exception(answer)
        if created:
            self._notifier.poke("demand")


async def _store_posts(database: Database, posts: Sequence[NewPost]) -> list[Answer]:
    """Store together; if the database refuses a value, by halves, so that only the culprit fails."""
    try:
        return await database.retrying_hot(lambda hot: _store_together(hot, posts))
    except (DataRefused, ConstraintViolated) as refused:
        if len(posts) == 1:
            return [await _last_word(database, posts[0], refused=refused)]
        middle = len(posts) // 2
        return [*await _store_posts(database, posts[:middle]), *await _store_posts(database, posts[middle:])]


async def _last_word(database: Database, post: NewPost, *, refused: Exception) -> Answer:
    """Why one post cannot be stored. An asset deleted while it was stored is not there the second time."""
    if isinstance(refused, ConstraintViolated):
        try:
            return (await database.retrying_hot(lambda hot: _store_together(hot, [post])))[0]
        except (DataRefused, ConstraintViolated) as again:
            refused = again
    return DataRefused(str(refused))


async def _store_together(hot: HotConnection, posts: Sequence[NewPost]) -> list[Answer]:
    start = await statements.start_posts(hot, asset_ids=sorted({post.asset_id for post in posts}), posts=len(posts))
    active, event_ids, body_ids, moment = start.active, start.event_ids, start.body_ids, start.moment
    firsts: dict[str, IdempotencyRow] = {}
    for post, event_id in zip(posts, event_ids, strict=True):
        if post.idempotency_key is not None and post.asset_id in active:
            row = IdempotencyRow(key=post.idempotency_key, body_digest=post.body_digest, event_id=event_id)
            firsts.setdefault(post.idempotency_key, row)
    known = await _remember(hot, firsts)
    answers: list[Answer] = []
    events: list[EventRow] = []
    for post, event_id, body_id in zip(posts, event_ids, body_ids, strict=True):
        first = known.get(post.idempotency_key) if post.idempotency_key is not None else None
        if post.asset_id not in active and first is None:
            answers.append(AssetNotFound(asset_id=post.asset_id))
        elif first is not None and first.event_id != event_id:
            same = first.body_digest == post.body_digest
            answers.append(
                PostedEvent(event_id=first.event_id, created=False)
                if same
                else IdempotencyConflict(key=post.idempotency_key)
            )
        else:
            answers.append(PostedEvent(event_id=event_id, created=True, timestamp=moment))
            events.append(EventRow(id=event_id, asset_id=post.asset_id, body_id=body_id, origin="rest"))
    bodies = {body_id: post.extra for body_id, post in zip(body_ids, posts, strict=True)}
    await record(hot, bodies=bodies, events=events)
    reach(CrashPoint.POST_UNCOMMITTED)
    return answers


async def _remember(hot: HotConnection, firsts: Mapping[str, IdempotencyRow]) -> dict[str, IdempotencyRow]:
    """What each key stands for: this transaction's event if the key is new, else the first one's."""
    if not firsts:
        return {}
    new = await statements.insert_idempotency_keys(hot, rows=list(firsts.values()))
    known = {key: row for key, row in firsts.items() if key in new}
    old = sorted(set(firsts) - new)
    if old:
        known.update(await statements.idempotency_keys(hot, keys=old))
    return known
