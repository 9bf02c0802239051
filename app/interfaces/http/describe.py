"""The description of the API: ``python -m app.interfaces.http.describe > openapi.json``."""

from __future__ import annotations

import json
import sys

from app.interfaces.http.application import described_application


def description() -> str:
    """The OpenAPI document as it is kept in the repository; without the version, which changes by itself."""
    document = described_application().openapi()
    document["info"]["version"] = "2"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(description())
