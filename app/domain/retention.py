"""What retention removes, kind by kind."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """A kind of thing that is removed once it is old, in the order in which kinds are cleaned."""

    RUNS = "runs"  #: Ended runs with task instances, XComs, causes and changes of state; the latest by the clock stays.
    EVENTS = "events"  #: Events that no kept run names and that wait for no consumer, with their bodies.
    DEAD_LETTERS = "dead_letters"  #: Refused messages; one with an identity at least as long as identities are kept.
    IDENTITIES = "identities"  #: "This message already made an event", past the de-duplication period.
    IDEMPOTENCY_KEYS = "idempotency_keys"  #: Keys of requests, past the same period.
    STATE_CHANGES = "state_changes"  #: Changes of state of triggers (those of a run go with the run).
    JOBS = "jobs"  #: Processes that ended and own nothing.
    IMPORT_ERRORS = "import_errors"  #: Errors of pipeline files that are gone.
    VERSIONS = "versions"  #: Versions of DAGs that were replaced and that no run has.
    BUNDLES = "bundles"  #: Code that no version, file, watcher or trigger names.


#: Kinds that are a record of what happened; all others are book-keeping.
RECORDS = (Kind.RUNS, Kind.EVENTS, Kind.DEAD_LETTERS)
#: Kinds that answer redeliveries and repeated requests.
MEMORIES = (Kind.IDENTITIES, Kind.IDEMPOTENCY_KEYS)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far the cleaning of a kind has come, in order of age."""

    at: datetime
    id: int = 0
