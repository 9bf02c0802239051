"""What routes ask for: the process's host, the caller, the page.

All are coroutine functions: a plain one would be run in a thread, a detour that costs a request more than its work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.interfaces.http.tokens import NotAuthenticated, Tokens
from app.processes.host import Host
from app.processes.requeueing import Requeuer
from app.services.events import EventPoster
from app.services.named_assets import AssetNames
from app.store.listings.paging import Paging

#: Larger offsets make no sense and do not fit the database's integers.
LARGEST_OFFSET = 2**53
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="A token of POST /auth/token")


async def the_host(request: Request) -> Host:
    """The host this API serves."""
    found: Host = request.app.state.host
    return found


async def the_tokens(request: Request) -> Tokens:
    """The checker of tokens."""
    found: Tokens = request.app.state.tokens
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PostingTools:
    """What posting an event needs: names of assets, and the group committer."""

    names: AssetNames
    poster: EventPoster


async def the_posting(request: Request) -> PostingTools:
    """The tools of posting."""
    found: PostingTools = request.app.state.posting
    return found


async def the_requeuer(request: Request) -> Requeuer:
    """What makes events of dead letters."""
    found: Requeuer = request.app.state.requeuer
    return found


async def caller(
    request: Request, _described: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> str:
    """The user whom :class:`app.interfaces.http.guard.Authentication` found; 401 if it was passed by."""
    found: str | None = request.scope.get("caller")
    if found is None:
        raise NotAuthenticated("Not authenticated")
    return found


async def page(
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
Posting = Annotated[PostingTools, Depends(the_posting)]
RequeuerOf = Annotated[Requeuer, Depends(the_requeuer)]
