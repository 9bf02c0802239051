"""Template fields: Jinja text and late values, rendered before a task runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jinja2
import jinja2.nativetypes
import jinja2.sandbox

from app.sdk.context import Context
from app.sdk.late_values import LateValue

if TYPE_CHECKING:
    from app.sdk.dag import DAG
    from app.sdk.operators.base import BaseOperator


class TemplateFault(Exception):
    """A template field cannot be rendered; the message names the field and what is wrong."""


class _Missing(jinja2.StrictUndefined):
    """An undefined name or attribute: any use but ``is defined`` and ``default()`` fails."""


class _Sandbox(jinja2.sandbox.SandboxedEnvironment):
    pass


class _NativeSandbox(jinja2.nativetypes.NativeEnvironment, jinja2.sandbox.SandboxedEnvironment):
    pass


def environment_for(dag: DAG) -> jinja2.Environment:
    """The template environment of a DAG: sandboxed, strict about undefined names."""
    kind = _NativeSandbox if dag.render_template_as_native_obj else _Sandbox
    folders = [dag.template_searchpath] if isinstance(dag.template_searchpath, str) else dag.template_searchpath
    environment = kind(
        undefined=_Missing,
        loader=jinja2.FileSystemLoader(list(folders)) if folders else None,
        cache_size=0,
        keep_trailing_newline=True,
    )
    environment.filters.update(_FILTERS)
    environment.globals.update(dag.user_defined_macros)
    environment.filters.update(dag.user_defined_filters)
    return environment


def render_fields(task: BaseOperator, context: Context, *, dag: DAG) -> None:
    """Render the template fields of ``task`` in place. Raises :class:`TemplateFault`."""
    environment: jinja2.Environment | None = None
    for name in task.template_fields:
        value = getattr(task, name, None)
        if not _needs_rendering(value):
            continue
        if environment is None:
            environment = environment_for(dag)
        setattr(task, name, _Renderer(environment, context, field=f"{task.task_id}.{name}").render(value, ()))


def render_text(text: str, context: Context, *, dag: DAG, field: str) -> Any:
    """Render one text. Raises :class:`TemplateFault`."""
    return _Renderer(environment_for(dag), context, field=field).render(text, ())


class _Renderer:
    def __init__(self, environment: jinja2.Environment, context: Context, *, field: str) -> None:
        self._environment = environment
        self._context = context
        self._field = field

    def render(self, value: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(value, LateValue):
            return value.resolve(self._context)
        kind = type(value)
        if kind is str:
            return self._text(value, path)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*(self.render(member, (*path, index)) for index, member in enumerate(value)))
        if kind in {list, tuple, set, frozenset}:
            return kind(self.render(member, (*path, index)) for index, member in enumerate(value))
        if kind is dict:
            return {
                key.resolve(self._context) if isinstance(key, LateValue) else key: self.render(member, (*path, key))
                for key, member in value.items()
            }
        return value

    def _text(self, text: str, path: tuple[Any, ...]) -> Any:
        if not _is_template(text):
            return text
        try:
            return self._environment.from_string(text).render(_visible(self._context))
        except jinja2.UndefinedError as error:
            raise TemplateFault(f"{self._place(path)}: {self._explained(error)}") from error
        except jinja2.TemplateSyntaxError as error:
            raise TemplateFault(f"{self._place(path)}: line {error.lineno}: {error.message}") from error
        except jinja2.TemplateError as error:
            raise TemplateFault(f"{self._place(path)}: {error}") from error

    def _place(self, path: tuple[Any, ...]) -> str:
        return f"template field {self._field}{''.join(f'[{step!r}]' for step in path)}"

    def _explained(self, error: jinja2.UndefinedError) -> str:
        message = error.message or "an undefined name is used"
        for name in _quoted_names(message):
            if explanation := self._context.explains(name):
                return explanation
        if "TriggeringAssetEvents" in message:
            return "triggering_asset_events: the key is an Asset, not str; in templates take .values() or .items()"
        if message.endswith("is undefined"):
            return f"{message}; known: {self._context.known()}"
        return message


def _quoted_names(message: str) -> list[str]:
    return message.split("'")[1::2]


def _visible(context: Context) -> Mapping[str, Any]:
    return dict(context)


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def _needs_rendering(value: Any) -> bool:
    if isinstance(value, str):
        return _is_template(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_needs_rendering, value))
    if isinstance(value, dict):
        return any(_needs_rendering(key) or _needs_rendering(member) for key, member in value.items())
    return isinstance(value, LateValue)


def _ds(value: Any) -> str:
    return str(value.strftime("%Y-%m-%d"))


_FILTERS = {
    "ds": _ds,
    "ds_nodash": lambda value: value.strftime("%Y%m%d"),
    "ts": lambda value: value.isoformat(),
    "ts_nodash": lambda value: value.strftime("%Y%m%dT%H%M%S"),
}
