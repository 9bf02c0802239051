from __future__ import annotations

import subprocess
import sys

import app.sdk


def test_face_is_sorted_and_complete() -> None:
    assert app.sdk.__all__ == sorted(
        app.sdk.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    for name in app.sdk.__all__:
        assert getattr(app.sdk, name) is not None


def test_import_is_light() -> None:
    """Pipeline files are imported often: what they import must not bring event loops, servers or templates along."""
    heavy = {"aiohttp", "asyncio", "jinja2", "sqlalchemy", "subprocess"}
    code = f"import sys, app.sdk; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
