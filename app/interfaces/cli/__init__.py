"""The command `tidegate`."""
