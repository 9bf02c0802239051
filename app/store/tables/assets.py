"""Assets and their watchers."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, String, Table, Text, UniqueConstraint

from app.store.tables.base import Json, created, key, metadata, moment

asset = Table(
    "asset",
    metadata,
    key(),
    Column("name", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("extra", Json, nullable=False),
    #: At most one active asset per name and per uri.
    Column("is_active", Boolean, nullable=False),
    created(),
    moment("updated_at", nullable=False),
    UniqueConstraint("name", "uri"),
    Index("uq_asset_active_name", "name", unique=True, postgresql_where="is_active"),
    Index("uq_asset_active_uri", "uri", unique=True, postgresql_where="is_active"),
)

#: Link of an asset to the trigger of one of its watchers.
asset_watcher = Table(
    "asset_watcher",
    metadata,
    key(),
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="CASCADE"), nullable=False),
    Column("trigger_id", BigInteger, ForeignKey("trigger.id"), nullable=False),
    Column("name", Text, nullable=False),
    #: JMESPath over the payload; NULL lets everything through.
    Column("when_expression", Text),
    #: JSON Schema as canonical text; NULL accepts everything.
    Column("payload_schema", Text),
    created(),
    UniqueConstraint("asset_id", "name", "trigger_id"),
    Index("ix_asset_watcher_trigger_id", "trigger_id"),
)

#: The files that declare a link; it ends with the last of them.
asset_watcher_source = Table(
    "asset_watcher_source",
    metadata,
    Column("watcher_id", BigInteger, ForeignKey("asset_watcher.id", ondelete="CASCADE"), primary_key=True),
    Column("file_path", Text, primary_key=True),
    Column("bundle_digest", String(64), ForeignKey("bundle.digest"), nullable=False),
)
