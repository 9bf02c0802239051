"""Tasks that are shell commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from app.sdk.errors import SkipTask
from app.sdk.operators.base import BaseOperator

if TYPE_CHECKING:
    import subprocess


class BashOperator(BaseOperator):
    """Runs ``bash_command`` in a shell of its own. Each line of its output goes to the log, the last one is the XCom.

    ``env`` replaces the environment, or adds to it with ``append_env``. An exit code in ``skip_on_exit_code`` (99)
    skips the task, any other but 0 fails it. When the attempt is stopped, the whole process group is.
    """

    template_fields: ClassVar[Sequence[str]] = ("bash_command", "env", "cwd")

    def __init__(
        self,
        *,
        bash_command: str,
        env: Mapping[str, str] | None = None,
        append_env: bool = False,
        skip_on_exit_code: int | Collection[int] | None = 99,
        cwd: str | None = None,
        output_encoding: str = "utf-8",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bash_command = bash_command
        self.env = None if env is None else dict(env)
        self.append_env = append_env
        codes = [skip_on_exit_code] if isinstance(skip_on_exit_code, int) else skip_on_exit_code or ()
        self.skip_on_exit_code = frozenset(codes)
        self.cwd = cwd
        self.output_encoding = output_encoding
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Any) -> str:
        import subprocess

        if self.cwd is not None and not os.path.isdir(self.cwd):  # noqa: PTH112 - a template field is text
            raise FileNotFoundError(f"cwd {self.cwd!r} is no folder")
        last_line = ""
        with subprocess.Popen(
            [shutil.which("bash") or "bash", "-c", str(self.bash_command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.cwd,
            env=self._environment(context),
            start_new_session=True,
        ) as process:
            self._process = process
            assert process.stdout is not None
            try:
                for raw in process.stdout:
                    last_line = raw.decode(self.output_encoding, errors="backslashreplace").rstrip("\r\n")
                    self.log.info("%s", last_line)
            except BaseException:
                self.on_kill()  # leaving the block waits for the process
                raise
        return self._judge(process.returncode, last_line)

    def _environment(self, context: Any) -> dict[str, str]:
        environment = dict(os.environ) if self.env is None or self.append_env else {}
        environment.update(
            {
                "TIDEGATE_CTX_DAG_ID": context["dag"].dag_id,
                "TIDEGATE_CTX_RUN_ID": context["run_id"],
                "TIDEGATE_CTX_TASK_ID": self.task_id,
                "TIDEGATE_CTX_TRY_NUMBER": str(context["ti"].try_number),
            }
        )
        environment.update({name: str(value) for name, value in (self.env or {}).items()})
        return environment

    def _judge(self, exit_code: int, last_line: str) -> str:
        if exit_code in self.skip_on_exit_code:
            raise SkipTask(f"the command ended with exit code {exit_code}, which means skipped")
        if exit_code < 0:
            raise RuntimeError(f"the command was ended by signal {-exit_code}")
        if exit_code:
            raise RuntimeError(f"the command failed with exit code {exit_code}")
        return last_line

    def on_kill(self) -> None:
        import subprocess

        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
