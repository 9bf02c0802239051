"""Whatever is asked, the answer is one that is described: never a bare 500, never a broken connection."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx
import jwt
import pytest
from structlog.testing import capture_logs

from app.interfaces.http.tokens import NotAuthenticated, Tokens
from app.kernel.errors import TidegateError
from tests.http.conftest import PASSWORD
from tests.http.described import Operation, operations
from tests.http.filled import DAG, fill
from tests.triggerer.world import World

EVENTS = "/api/v2/assets/events"
ODD = (
    "\0", "%", "%00", "\ufffd", "🌊" * 200, "x" * 5000, "-1", "0", "-0", str(2**31), str(2**63), str(10**30),
    "1" * 5000, "NaN", "Infinity", "1e400", "1.5", "null", "true", "[]", "{}", "../../etc/passwd", "..", ".", "~",
    "'; --", '"',
    "\\", "\n", "\u2028", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2026-13-01T00:00:00Z",
    "2026-01-01T00:00:00", "-99999999999", "99999999999999999999",
)  # fmt: skip
#: JSON texts of bodies that no route expects.
ODD_BODIES = (
    b"", b"{", b"null", b"[]", b"1", b'"x"', b"{}", b"\xff\xfe", b"NaN", b"1" * 5000, b"[" * 100_000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000, b'{"\\ud800": 1}', b'{"asset_id": 1e400}', b'{"asset_id": NaN}',
    b'{"asset_id": "\\ud800"}', b'{"name": "\\ud800"}', b'{"name": "a", "name": "\\u0000"}', b'{"uri": "x://\\udfff"}',
    b'{"username": "\\ud800", "password": "\\ud800"}', b'{"is_paused": "\\ud800"}', b'{"is_paused": 3}',
    b'{"asset_id": ' + b"9" * 4000 + b"}", b'{"asset_id": ' + b"9" * 5000 + b"}",
    b'{"logical_date": null, "conf": {"a": NaN}}', b'{"logical_date": null, "conf": {"a": 1e999}}',
    b'{"logical_date": null, "conf": {"a": "\\ud800"}}', b'{"logical_date": null, "conf": {"\\udfff": 1}}',
    b'{"logical_date": null, "conf": {"a": ' + b"9" * 400 + b"}}", b'{"logical_date": null, "dag_run_id": "~"}',
    b'{"logical_date": null, "dag_run_id": "a/b"}', b'{"logical_date": null, "note": "\\u0000"}',
    b'{"logical_date": "0001-01-01T00:00:00+14:00"}',
    b'{"logical_date": null, "conf": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"logical_date": null, "conf": {"a": ' + b"[" * 150 + b"]" * 150 + b"}}",
    b'{"logical_date": null, "data_interval_start": "2026-01-01T00:00:00Z"}',
)  # fmt: skip


def within(path: str, **places: Any) -> str:
    """A path with its places filled; what is not named gets a value that may exist."""
    every = {"dag_id": DAG, "run_id": "r", "task_id": "t", "xcom_key": "k", "try_number": 1, "asset_id": 1,
             "import_error_id": 1, "dead_letter_id": 1, "trigger_id": 1, **places}  # fmt: skip
    return path.format(**{name: quote(str(value), safe="") for name, value in every.items()})


_turns = itertools.count()


def turn(values: Sequence[str], count: int) -> list[str]:
    """The next few values: over all places each comes to its turn often."""
    return [values[next(_turns) % len(values)] for _ in range(count)]


def check(operation: Operation, answer: httpx.Response, said: object) -> None:
    """Described, and no 5xx. A slash or dot inside a place leads to another route, or to none."""
    assert answer.status_code < 500, f"{operation.method} {operation.path} {said!r}: {answer.text}"
    if answer.status_code not in {307, 405}:
        operation.check(answer.status_code, answer.json() if answer.content else None)


async def test_odd_places_and_parameters(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    for operation in operations():
        if operation.method not in {"get", "delete"}:
            continue
        for name in operation.names("path"):
            for value in turn(ODD, 8):
                answer = await api.request(operation.method, within(operation.path, **{name: value}))
                if "/" not in value and value not in {".", ".."}:
                    check(operation, answer, value)
        for name in operation.names("query") if operation.method == "get" else ():
            for value in turn(ODD, 8):
                check(operation, await api.get(within(operation.path), params={name: value}), (name, value))


async def test_odd_bodies(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    headers = {"Content-Type": "application/json"}
    for operation in operations():
        if operation.method not in {"post", "patch"}:
            continue
        for body in ODD_BODIES:
            answer = await api.request(operation.method, within(operation.path), content=body, headers=headers)
            assert 400 <= answer.status_code < 500, f"{operation.path} {body[:80]!r}: {answer.status_code}"
            check(operation, answer, body[:80])
    assert await world.value("SELECT count(*) FROM asset_event WHERE origin = 'rest' AND source IS NULL") == 4


@pytest.mark.parametrize(
    ("extra", "status", "reason"),
    [
        ('{"a": NaN}', 422, "finite"),
        ('{"a": 1e999}', 422, "finite"),
        ('{"a": 36893488147419103232}', 422, "64 bits"),
        ('{"a": "\\ud800"}', 422, "surrogate"),
        ('{"\\udfff": 1}', 422, "surrogate"),
        ('{"a": ' + "[" * 150 + "]" * 150 + "}", 422, "100"),
        ('{"a": "' + "x" * 1_048_576 + '"}', 413, "1048576"),
        ('{"a": ' + "9" * 5000 + "}", 400, "body"),
    ],
    ids=["nan", "infinity", "range", "surrogate", "surrogate key", "depth", "size", "digits"],
)
async def test_payloads_that_are_refused(
    api: httpx.AsyncClient, world: World, extra: str, status: int, reason: str
) -> None:
    asset = await world.asset()
    body = f'{{"asset_id": {asset}, "extra": {extra}}}'.encode()

    answer = await api.post(EVENTS, content=body, headers={"Content-Type": "application/json"})

    assert (answer.status_code, reason in answer.text) == (status, True), answer.text[:300]
    assert await world.value("SELECT count(*) FROM asset_event") == 0


async def test_without_a_token_nothing_is_told(anonymous: httpx.AsyncClient, settings: Any) -> None:
    tokens = Tokens.load(settings)
    expired = Tokens(key=tokens.key, password=b"p", lifetime=-tokens.lifetime).issue("admin", "p")
    forged = Tokens.of("another secret", "p", lifetime=60).issue("admin", "p")
    unsigned = jwt.encode({"sub": "admin", "aud": "tidegate", "exp": 2**33}, "", algorithm="none")
    given = [None, "", "Bearer", "Bearer ", "Bearer x", "Basic YTpi", "Bearer \xff\xfe", f"Bearer {'x' * 9000}"]
    for header in (*given, *(f"Bearer {token}" for token in (expired, forged, unsigned))):
        headers = httpx.Headers([] if header is None else [(b"Authorization", header.encode("latin-1"))])
        for method, path in (("GET", "/api/v2/dags"), ("POST", EVENTS), ("GET", "/api/v2/no/such/path")):
            answer = await anonymous.request(method, path, headers=headers, content=b"{")
            assert answer.status_code == 401, (header, path, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert isinstance(answer.json()["detail"], str)


async def test_every_route_but_the_public_ones_needs_a_token(anonymous: httpx.AsyncClient) -> None:
    for operation in operations():
        answer = await anonymous.request(operation.method, within(operation.path))
        assert (answer.status_code == 401) == operation.secured, (operation.path, answer.status_code)


async def test_the_password_decides(anonymous: httpx.AsyncClient) -> None:
    for username, password in (("admin", "wrong"), ("root", PASSWORD), ("", ""), ("admin", PASSWORD + " ")):
        answer = await anonymous.post("/auth/token", json={"username": username, "password": password})
        assert (answer.status_code, answer.json()) == (401, {"detail": "wrong user name or password"})
    answer = await anonymous.post("/auth/token", json={"username": "admin", "password": ["s3cret"]})
    assert (answer.status_code, "s3cret" in answer.text) == (422, False)


async def test_a_refused_body_tells_the_place(api: httpx.AsyncClient) -> None:
    answer = await api.post(EVENTS, json={"name": "a", "x": 1, "extra": []})
    assert answer.status_code == 422
    places = {(entry["type"], tuple(entry["loc"])) for entry in answer.json()["detail"]}
    assert places == {("extra_forbidden", ("body", "x")), ("dict_type", ("body", "extra"))}


async def test_an_unknown_path_and_method_are_told(api: httpx.AsyncClient) -> None:
    for method, path, status in (("GET", "/api/v2/nothing", 404), ("PUT", "/api/v2/dags", 405), ("GET", "/", 404)):
        answer = await api.request(method, path)
        assert (answer.status_code, "detail" in answer.json()) == (status, True)


async def test_headers_forbid_guessing_and_keeping(api: httpx.AsyncClient) -> None:
    for path in ("/api/v2/dags", "/api/v2/nothing", "/api/v2/version"):
        headers = (await api.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


async def test_what_nobody_foresaw_names_its_log_entry(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret place")

    monkeypatch.setattr("app.interfaces.http.routes.triggers.listed.list_triggers", broken)
    with capture_logs() as logged:
        answer = await api.get("/api/v2/triggers")
    assert answer.status_code == 500
    [entry] = [entry for entry in logged if entry.get("action") == "request_failed"]
    assert answer.json() == {"detail": f"internal error; the log has it under {entry['reference']}"}
    assert "secret" not in answer.text


async def test_a_large_body_is_refused_announced_or_not(api: httpx.AsyncClient) -> None:
    block = b" " * 2**20

    async def pieces() -> Any:
        for _ in range(64):
            yield block

    for content in (block * 64, pieces()):
        answer = await api.post(EVENTS, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert "2162688 bytes" in json.loads(answer.content)["detail"]


def test_a_token_has_one_owner() -> None:
    tokens = Tokens.of("secret", "p", lifetime=60)
    assert tokens.user_of(tokens.issue("admin", "p")) == "admin"
    with pytest.raises(NotAuthenticated):
        tokens.user_of("a.b.c")
    assert not issubclass(NotAuthenticated, TidegateError), "it must not reach a person as an error of the program"
