"""What routes ask for: the process's host, the caller, the page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.interfaces.http.tokens import NotAuthenticated, Tokens
from app.processes.host import Host
from app.services.events import EventPoster
from app.store.listings.paging import Paging

#: Larger offsets make no sense and do not fit the database's integers.
LARGEST_OFFSET = 2**53
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="A token of POST /auth/token")


def the_host(request: Request) -> Host:
    """The host this API serves."""
    found: Host = request.app.state.host
    return found


def the_tokens(request: Request) -> Tokens:
    """The checker of tokens."""
    found: Tokens = request.app.state.tokens
    return found


def the_poster(request: Request) -> EventPoster:
    """The group committer of posted events."""
    found: EventPoster = request.app.state.poster
    return found


def caller(
    request: Request, _described: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> str:
    """The user whom :class:`app.interfaces.http.guard.Authentication` found; 401 if it was passed by."""
    found: str | None = request.scope.get("caller")
    if found is None:
        raise NotAuthenticated("Not authenticated")
    return found


def page(
    host: HostOf,
    *,
    limit: Annotated[int | None, Query(ge=0, le=LARGEST_OFFSET, description="Entries, silently capped")] = None,
    offset: Annotated[int, Query(ge=0, le=LARGEST_OFFSET)] = 0,
    order_by: Annotated[list[str] | None, Query(description="Attribute; a leading - means descending")] = None,
) -> Paging:
    """Which part of a list is asked for."""
    settings = host.settings
    # 0 asks for the default, as in the field.
    size = min(limit or settings.page_limit_default, settings.page_limit_max)
    return Paging(limit=size, offset=offset, order_by=tuple(order_by or ()))


HostOf = Annotated[Host, Depends(the_host)]
Caller = Annotated[str, Depends(caller)]
PageOf = Annotated[Paging, Depends(page)]
Poster = Annotated[EventPoster, Depends(the_poster)]
