"""Queues and teams of triggers, as plain values."""

from __future__ import annotations

import pytest

from app.domain.placement import in_team, queue_of_deferral, team_of
from app.domain.specs import LoadResult
from tests.declared import consumer, trigger, watched


@pytest.mark.parametrize(
    ("file", "team"),
    [
        ("sales/orders.py", "sales"),
        ("sales/deep/orders.py", "sales"),
        ("sales.py", None),
        ("sales_archive/x.py", None),
        ("other/sales/x.py", None),
        ("x.py", None),
    ],
)
def test_the_first_folder_is_the_team(file: str, team: str | None) -> None:
    assert team_of(file, {"sales", "ops"}) == team
    assert team_of(file, frozenset()) is None


def test_equal_triggers_of_teams_are_different_ones() -> None:
    result = LoadResult(file="f.py", dags=(consumer("d", watched("a", ("w", trigger(queue="q")))),), modules=())
    found = {}
    for team in (None, "sales", "ops"):
        (scoped,) = [watcher.trigger for asset in in_team(result, team).dags[0].assets for watcher in asset.watchers]
        assert (scoped.team, scoped.queue, scoped.classpath) == (team, "q", trigger().classpath)
        found[team] = scoped.identity
    assert found[None] == trigger().identity
    assert len(set(found.values())) == 3
    assert all(len(identity) == 64 for identity in found.values())


def test_a_deferral_goes_to_the_task_s_queue_if_that_is_on() -> None:
    assert queue_of_deferral("gpu", queues_enabled=True) == "gpu"
    assert queue_of_deferral("gpu", queues_enabled=False) is None
