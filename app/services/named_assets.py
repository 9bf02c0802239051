"""The asset a caller means: by id, name or URI, or by several of these that agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

from app.domain.assets import normalise_uri, without_password
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound
from app.store.database import Database
from app.store.named_assets import NamedAsset, find_named, find_named_active

__all__ = ["AssetInactive", "AssetNames", "AssetUnknown", "NamedAsset", "NamesDisagree", "named_asset"]

#: Most names remembered.
REMEMBERED = 10_000
_Names: TypeAlias = tuple[int | None, str | None, str | None]


class AssetUnknown(NotFound):
    """There is no asset with {said}."""


class AssetInactive(NotFound):
    """The asset with {said} is not active: no DAG uses it now."""


class NamesDisagree(AlreadyExists):
    """The names given belong to different assets: {said}. Give one of them, or those of one asset."""


async def named_asset(
    database: Database, *, asset_id: int | None = None, name: str | None = None, uri: str | None = None
) -> NamedAsset:
    """The one active asset that fits all that is given. A URI may be spelt as in a pipeline file.

    Raises:
        InvalidRequest: Nothing is given, or it can be no asset's.
        AssetUnknown: No asset has one of them.
        AssetInactive: The asset is not in use.
        NamesDisagree: They belong to different assets.
    """
    given = _given(asset_id, name, uri)
    async with database.glance() as hot:
        found = _fitting(await find_named_active(hot, **given), given)
        if found is not None:
            return found
        rows = await find_named(hot, **given)
    asked = {"asset_id": asset_id, "name": name, "uri": uri}
    said = {key: f"{key} {value!r}" for key, value in asked.items() if value is not None}
    if _fitting(rows, given) is not None:
        raise AssetInactive(said=", ".join(said.values()))
    unknown = [text for key, text in said.items() if not any(_fits(row, given, key) for row in rows)]
    if unknown:
        raise AssetUnknown(said=", ".join(unknown))
    raise NamesDisagree(said=", ".join(said.values()))


class AssetNames:
    """What callers meant lately, so that most posts need no look-up of their own.

    An asset's id, name and URI never change and at most one active asset has each, so what is remembered is right for
    as long as that asset is active. Whoever stores checks that anyway, and calls :meth:`forget` when it is not so.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[_Names, NamedAsset] = {}

    async def find(self, *, asset_id: int | None = None, name: str | None = None, uri: str | None = None) -> NamedAsset:
        """Like :func:`named_asset`."""
        names = (asset_id, name, uri)
        found = self._known.get(names)
        if found is None:
            found = await named_asset(self._database, asset_id=asset_id, name=name, uri=uri)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[names] = found
        return found

    def forget(self, asset: NamedAsset) -> None:
        """The asset is not active any more."""
        self._known = {names: known for names, known in self._known.items() if known.asset_id != asset.asset_id}


class _Given(TypedDict):
    """What the asset must have: each attribute one of these values; None: any."""

    asset_id: Sequence[int] | None
    name: Sequence[str] | None
    uri: Sequence[str] | None


def _given(asset_id: int | None, name: str | None, uri: str | None) -> _Given:
    if asset_id is None and name is None and uri is None:
        raise InvalidRequest(reason="name the asset by asset_id, name or uri")
    try:
        return _Given(
            asset_id=None if asset_id is None else (asset_id,),
            name=None if name is None else (without_password(name)[0],),
            uri=None if uri is None else (uri, normalise_uri(uri)),
        )
    except ValueError as error:
        raise InvalidRequest(reason=str(error)) from error


def _fitting(rows: Sequence[NamedAsset], given: _Given) -> NamedAsset | None:
    return next((row for row in rows if all(_fits(row, given, key) for key in given)), None)


def _fits(row: NamedAsset, given: _Given, key: str) -> bool:
    values: Sequence[Any] | None = given[key]  # type: ignore[literal-required]  # its keys are the attributes
    return values is None or getattr(row, key) in values
