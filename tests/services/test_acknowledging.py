"""A trigger's row says whether its source forgets what was acknowledged: its identities are kept by that."""

from __future__ import annotations

from typing import Any

import pytest

from app.store.database import Database
from providers.kafka.trigger import KafkaTrigger
from providers.memory.trigger import MemoryTrigger
from providers.sqs.trigger import SqsTrigger
from tests.declared import Declared, consumer, trigger, watched
from watchers import BaseEventTrigger, FileEventTrigger, MessageQueueTrigger
from watchers.describe import describe_trigger


class Listing(BaseEventTrigger):
    """An author's own, which says nothing."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Listing", {}

    def run(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [KafkaTrigger, SqsTrigger, MemoryTrigger])
def test_sources_that_forget_say_so(kind: type[BaseEventTrigger]) -> None:
    assert kind.acknowledges


def test_what_describes_a_trigger_says_so_of_the_one_that_runs() -> None:
    assert describe_trigger(MessageQueueTrigger(queue="memory://q")).acknowledges
    assert not describe_trigger(FileEventTrigger("/x")).acknowledges
    assert not describe_trigger(Listing()).acknowledges


async def test_the_row_follows_the_declaration(database: Database) -> None:
    declared = Declared(database)
    forgets = trigger("{}", acknowledges=True)
    await declared.sync("a.py", consumer("d", watched("a", ("w", forgets))))
    query = "SELECT id, acknowledges, epoch FROM trigger"
    before = await declared.one(query)
    assert before.acknowledges
    await declared.sync("a.py", consumer("d", watched("a", ("w", trigger("{}")))), code="2")
    after = await declared.one(query)
    assert (after.id, after.acknowledges, after.epoch) == (before.id, False, before.epoch)
    outcome = await declared.sync("a.py", consumer("d", watched("a", ("w", trigger("{}")))), code="2")
    assert outcome.versions == ()
