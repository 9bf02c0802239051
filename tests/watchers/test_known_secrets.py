from __future__ import annotations

import json
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from watchers import connections, get_connection, get_variable, known_secrets
from watchers.known_secrets import KnownSecrets


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> KnownSecrets:
    """A process that has looked nothing up."""
    fresh = KnownSecrets()
    monkeypatch.setattr(connections, "known_secrets", fresh)
    return fresh


def test_nothing_known_masks_passwords_in_uris(known: KnownSecrets) -> None:
    assert known.mask("s3://u:hunter2@h and hunter2") == "s3://u:***@h and hunter2"


def test_what_a_connection_holds(known: KnownSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "region": "eu-west-1",
        "sasl_password": "s4sl-pw",
        "keyfile_dict": json.dumps({"private_key": "line-one\nline-two"}),
        "proxy": "http://me:proxy-pw@proxy",
        "nested": [{"api-key": "nested-key"}],
        "use_token": "true",
    }
    document = {"conn_type": "x", "host": "db", "login": "tiger", "password": "sw0rd/fish", "extra": extra}
    monkeypatch.setenv("TIDEGATE_CONN_MYDB", json.dumps(document))
    seen = "eu-west-1 true db tiger"
    assert known.mask("sw0rd/fish") == "sw0rd/fish"
    get_connection("mydb")
    assert known.mask(seen) == seen
    for secret in ("sw0rd/fish", "sw0rd%2Ffish", "s4sl-pw", "line-one", "line-two", "proxy-pw", "nested-key"):
        assert known.mask(f"({secret})") == "(***)", secret


def test_the_password_of_a_uri(known: KnownSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CONN_MYDB", "postgres://u:p%40ssw0rd@db/x?token=abcdef")
    get_connection("mydb")
    assert known.mask("p@ssw0rd p%40ssw0rd abcdef postgres u x") == "*** *** *** postgres u x"


def test_variables_of_telling_keys(known: KnownSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_VAR_DB_PASSWORD", "v4riable")
    monkeypatch.setenv("TIDEGATE_VAR_CITY", "Lisbon")
    monkeypatch.setenv("TIDEGATE_VAR_SERVICE", '{"api_key": "inner-key", "url": "http://a:uri-pw@h"}')
    for key in ("db_password", "city", "service"):
        get_variable(key)
    get_variable("other_token", "a default")
    assert known.mask("v4riable Lisbon inner-key uri-pw a default") == "*** Lisbon *** *** a default"


def test_short_texts_are_masked_where_they_stand_alone(known: KnownSecrets) -> None:
    known.add("abc", name="password")
    known.add("ab", name="password")
    assert known.mask("abc abcd ab") == "*** abcd ab"


def test_the_oldest_are_forgotten(known: KnownSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "LIMIT", 3)
    for number in range(5):
        known.add(f"secret-{number}", name="token")
    assert known.mask("secret-1 secret-2 secret-4") == "secret-1 *** ***"


def test_many_threads_lose_nothing(known: KnownSecrets) -> None:
    start = threading.Barrier(8)

    def add(number: int) -> None:
        start.wait()
        known.add(f"of-thread-{number}", name="token")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert known.mask(" ".join(f"of-thread-{number}" for number in range(8))) == " ".join(["***"] * 8)


def test_a_fork_while_the_lock_is_held() -> None:
    with known_secrets.known_secrets._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which is what this is about
        pid = os.fork()
        if pid == 0:
            known_secrets.known_secrets.add("from-the-fork", name="token")
            os._exit(0 if known_secrets.mask_known("from-the-fork") == "***" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
