"""What routes ask for: the process's host, the caller, the page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Query, Request

from app.interfaces.http.tokens import NotAuthenticated, Tokens
from app.processes.host import Host
from app.services.events import EventPoster
from app.store.listings.paging import Paging

#: Larger offsets make no sense and do not fit the database's integers.
LARGEST_OFFSET = 2**53


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
    tokens: Annotated[Tokens, Depends(the_tokens)],
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> str:
    """The authenticated user; 401 without a good bearer token."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("Not authenticated")
    return tokens.user_of(token.strip())


def page(
    host: Annotated[Host, Depends(the_host)],
    limit: Annotated[int | None, Query(ge=0, le=LARGEST_OFFSET, description="Entries; capped")] = None,
    offset: Annotated[int, Query(ge=0, le=LARGEST_OFFSET)] = 0,
    order_by: Annotated[list[str] | None, Query(description="Attribute; a leading - means descending")] = None,
) -> Paging:
    """Which part of a list is asked for."""
    settings = host.settings
    asked = settings.page_limit_default if limit is None else limit
    # 0 asks for the default, as in the field.
    size = min(asked or settings.page_limit_default, settings.page_limit_max)
    return Paging(limit=size, offset=offset, order_by=tuple(order_by or ()))


HostOf = Annotated[Host, Depends(the_host)]
Caller = Annotated[str, Depends(caller)]
PageOf = Annotated[Paging, Depends(page)]
Poster = Annotated[EventPoster, Depends(the_poster)]
