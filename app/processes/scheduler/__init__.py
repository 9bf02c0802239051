"""The scheduler process: makes runs of demand and of time, brings retries back, and looks after lost attempts."""

from __future__ import annotations
