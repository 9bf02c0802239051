"""Where a pipeline file went wrong, told in the author's files and without secrets."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from app.domain.specs import LocatedError
from app.sdk.module_files import is_below
from watchers.known_secrets import mask_known
from watchers.masking import redact_source

_LONGEST_TRACEBACK = 64 * 1024
_LONGEST_MESSAGE = 4 * 1024
_LARGEST_FILE = 8 * 1024 * 1024


def located(error: BaseException, *, root: Path, file: str, line: int | None = None) -> LocatedError:
    """``error`` as a value: the innermost place of it below ``root``, ``file`` and ``line`` if there is none."""
    trace = error.__traceback__  # taken first: the author's __str__ may raise the error again
    place = _syntax_place(error, root) or _innermost_place(trace, root)
    found_file, found_line = place if place is not None else (file, line)
    return LocatedError(
        file=found_file,
        line=found_line,
        message=_shortened(_masked(sentence(error)), _LONGEST_MESSAGE),
        traceback=_shortened(
            mask_known(redact_source(_trimmed_traceback(error, trace, root=root))), _LONGEST_TRACEBACK
        ),
    )


def refuse_oversize(path: Path) -> None:
    """Refuse a file so large that it is no pipeline. Raises :class:`ValueError`."""
    size = path.stat().st_size
    if size > _LARGEST_FILE:
        raise ValueError(f"the file is {size} bytes large; a pipeline file has at most {_LARGEST_FILE}")


def sentence(error: BaseException) -> str:
    """``error`` in one sentence: its kind and its text. Works for errors whose text cannot be made."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the author's __str__ may fail
        text = "(its text cannot be made)"
    if isinstance(error, SystemExit):
        return f"the file ends the interpreter while it is imported: SystemExit({text})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _masked(text: str) -> str:
    return mask_known(redact_source(text))


def _syntax_place(error: BaseException, root: Path) -> tuple[str, int | None] | None:
    if isinstance(error, SyntaxError) and error.filename and is_below(root, error.filename):
        return str(Path(error.filename).relative_to(root)), error.lineno
    return None


def _innermost_place(trace: TracebackType | None, root: Path) -> tuple[str, int] | None:
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    for file, line in reversed(places):
        if is_below(root, file):
            return str(Path(file).relative_to(root)), line
    return None


def _trimmed_traceback(error: BaseException, trace: TracebackType | None, *, root: Path) -> str:
    """The traceback from the first frame of the author's code on."""
    while trace is not None and not is_below(root, trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    try:
        return "".join(traceback.TracebackException(type(error), error, trace).format())
    except Exception:  # noqa: BLE001 - the author's __str__ may fail
        return f"{type(error).__name__}\n"


def _shortened(text: str, limit: int) -> str:
    # Surrogates in an author's text would break its way through JSON.
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"
