"""Everything that pipeline code may raise on purpose, and what Tidegate raises at it.

::

    DeclarationError (ValueError)      a DAG, task or schedule is declared wrongly; an import error of its file
    ├── DuplicateDagId
    ├── DuplicateTaskId
    └── DependencyCycle
    TaskControl                        how user code ends its own attempt
    ├── SkipTask                       end as skipped
    └── FailTask                       end as failed, without a further try
    TaskTimeout                        the attempt ran longer than its execution_timeout
    OutsideOfTask                      something was asked for that only a running task has
    MissingInContext (KeyError)        this run has no such variable; the message names an alternative
    PipelineError                     a pipeline file cannot be loaded; ``.error`` says where
"""

from __future__ import annotations

from app.domain.specs import LocatedError


class DeclarationError(ValueError):
    """A DAG, task or schedule is declared in a way that cannot work."""


class DuplicateDagId(DeclarationError):
    """Two DAGs of a file have one id; ``line`` is where the second is made, if that is known."""

    def __init__(self, message: str, *, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class DuplicateTaskId(DeclarationError):
    """Two tasks of one DAG have the same id."""


class DependencyCycle(DeclarationError):
    """Tasks depend on each other in a circle; the message names its path."""


class TaskControl(Exception):
    """Root of the exceptions by which a task ends itself."""


class SkipTask(TaskControl):
    """Raise it to end the task as skipped."""


class FailTask(TaskControl):
    """Raise it to fail the task for good: no retry."""


class TaskTimeout(BaseException):
    """The attempt ran longer than its ``execution_timeout``. Not an ``Exception``: a task's handlers let it pass."""


class OutsideOfTask(RuntimeError):
    """Asked for something that only exists while a task runs."""


class MissingInContext(KeyError):
    """The task's context has no such variable."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PipelineError(Exception):
    """A pipeline file cannot be loaded."""

    def __init__(self, error: LocatedError) -> None:
        self.error = error
        place = error.file if error.line is None else f"{error.file}:{error.line}"
        super().__init__(f"{place}: {error.message}")
