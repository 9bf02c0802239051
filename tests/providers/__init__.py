"""Tests of what one provider has beyond the contract suite."""

from __future__ import annotations
