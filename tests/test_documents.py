"""What the documents name exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`?make ([a-z-]+)", page.read_text())) & set(_commands(page))
    assert not {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)}


def _commands(page: Path) -> list[str]:
    """Words after ``make`` where it is a command: in code, not in prose."""
    code = re.findall(r"`([^`\n]+)`|^\s*(make .*)$", page.read_text(), re.MULTILINE)
    return [word for one, two in code for word in re.findall(r"\bmake ([a-z-]+)", one or two)]


def test_no_registry_is_named() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    hosts = re.compile(r"https?://[\w.-]*(pypi|pythonhosted|npmjs|maven\.org|debian\.org)", re.IGNORECASE)
    found = [name for name in tracked if hosts.search((ROOT / name).read_text(errors="replace"))]
    assert not [name for name in found if name != "tests/test_documents.py"]
