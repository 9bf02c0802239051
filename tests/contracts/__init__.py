"""Suites that every implementation of a port must pass."""

from __future__ import annotations
