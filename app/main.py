"""The roof: what the command `tidegate` runs."""

from __future__ import annotations

from app.interfaces.cli.root import run


def main() -> None:
    """Run the command line."""
    run()


if __name__ == "__main__":
    main()
