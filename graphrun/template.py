"""Renders chat templates in a sandbox and marks what the template itself wrote; the part that runs in the worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import Template, Undefined, nodes, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import sync_do_join
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from graphrun.provenance import Traced, concat, flags_of, written

# roles that are names of the format, not text of a user: templates build control tokens from them
ROLES = frozenset(("system", "user", "assistant", "tool", "developer", "function"))


class _MarkingGenerator(CodeGenerator):
    """Compiles every string that stands in the template to a Traced one."""

    def _literal(self, text: str) -> str:
        return f"environment.written({text!r})"

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        # a constant passed through |safe is markup, which stays what Jinja makes of it
        if isinstance(node.value, str) and not hasattr(node.value, "__html__"):
            self.write(self._literal(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        self.write(self._literal(node.data))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self._literal("".join(group))


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks text of the assistant for training; here it is just text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Formatter(SandboxedFormatter):
    """Keeps what each field became."""

    def __init__(self, environment: ImmutableSandboxedEnvironment) -> None:
        super().__init__(environment)
        self.fields: list[str] = []

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = value if isinstance(value, str) and not format_spec else super().format_field(value, format_spec)
        self.fields.append(text)
        return text


class _Environment(ImmutableSandboxedEnvironment):
    """The environment that templates are written for (that of `transformers`), with marking."""

    code_generator_class = _MarkingGenerator
    concat = staticmethod(concat)
    written = staticmethod(written)

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters["join"] = _join
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda format: now().strftime(format)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format of a text that the template wrote keeps the flags."""
        pattern = getattr(value, "__self__", None)
        if not isinstance(pattern, Traced) or getattr(value, "__name__", "") != "format":
            return super().wrap_str_format(value)

        def render(*args: Any, **kwargs: Any) -> str:
            formatter = _Formatter(self)
            text = formatter.vformat(pattern, args, kwargs)
            if 0 in flags_of(pattern):
                return text
            fields = iter(formatter.fields)
            parts: list[str] = []
            for literal, field, _, _ in formatter.parse(pattern):
                parts.append(written(literal))
                if field is not None:
                    parts.append(next(fields))
            traced = concat(parts)
            # differs where a field's format has fields of its own
            return traced if traced == text else text

        return render


@pass_eval_context
def _join(context: nodes.EvalContext, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    # Jinja's filter, but with an empty text between that lets the parts keep their flags
    return sync_do_join(context, value, d or written(""), attribute)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, >, & and ' for HTML
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


class Renderer:
    """A compiled template; raises whatever Jinja raises."""

    def __init__(self, source: str) -> None:
        self._now = datetime.now()
        self._template: Template = _Environment(lambda: self._now).from_string(source)

    def render(self, variables: Mapping[str, Any], tokens: Mapping[str, str], now: datetime) -> str:
        """The text with flags; `tokens` (bos_token and the like) and known roles count as the template's."""
        self._now = now
        values = {**variables, **{name: written(text) for name, text in tokens.items()}}
        values["messages"] = [_trust_role(message) for message in variables["messages"]]
        return self._template.render(values)


def _trust_role(message: Any) -> Any:
    if isinstance(message, dict) and message.get("role") in ROLES:
        return {key: written(value) if key == "role" else value for key, value in message.items()}
    return message


def explain(error: Exception) -> str:
    """One line for an error of a template, with its line where that is known."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, TemplateSyntaxError):
        line = error.lineno
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, RecursionError):
        text = "it is nested too deeply, or calls itself"
    elif not isinstance(error, TemplateError):
        text = f"{type(error).__name__}: {text}"
    return (f"line {line}: " if line else "") + text[:500]
