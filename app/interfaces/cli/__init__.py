"""The command `tidegate`.

Modules here import what a command works with only when it runs: the libraries of database and API take seconds to
import on a small machine, and `--help`, a wrong option and each process of the service should not pay for all of them.
"""
