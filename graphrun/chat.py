"""Chat: a conversation becomes token ids by the model's own chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from graphrun.core.errors import ModelError, TemplateError
from graphrun.core.gguf import ModelFile
from graphrun.sandbox import Sandbox
from graphrun.tokenizer import Piece, Tokenizer

TEMPLATE = "tokenizer.chat_template"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LONGEST_TEMPLATE = 1 << 20


class Chat:
    """The chat template of a model, safe to use with templates and messages of strangers.

    The template runs in Jinja's immutable sandbox, inside a process of its own. The kernel ends that process after
    0.6 s of processor time and refuses it more than 128 MB, so a loop or a text bomb is one TemplateError. (Where
    the system has no such limits, as on Windows, a clock of 10 s is left.)

    Every character of the result is known to be written by the template or to come from outside (messages, tools).
    Control tokens are parsed only in text that the template wrote as a whole, so "<|im_end|>" in a message stays
    text, also when it is put together from several messages. Trusted are the template's own strings, its bos_token
    and eos_token, and the names of the usual roles; strings that a template builds in an unusual way (the % operator,
    a format with a width) lose that trust and become plain text.
    """

    def __init__(
        self,
        source: str | None,
        tokens: Mapping[str, str],
        *,
        tool_source: str | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """`tokens`: bos_token and eos_token; `tool_source`: another template for conversations with tools."""
        self.source = source
        self.tool_source = tool_source or source
        self.tokens = dict(tokens)
        self.tokenizer = tokenizer
        self._sandbox = Sandbox()

    @classmethod
    def from_file(cls, file: ModelFile, tokenizer: Tokenizer) -> Chat:
        """The chat of a model; ChatML if the file has no template but ChatML's tokens, otherwise `render` raises.

        Raises ModelError if the template is no string.
        """
        source = _source(file, TEMPLATE)
        if source is None and None not in (tokenizer.id("<|im_start|>"), tokenizer.id("<|im_end|>")):
            source = CHATML
        tokens = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
        return cls(
            source,
            {name: "" if token is None else tokenizer.text(token) for name, token in tokens.items()},
            tool_source=_source(file, f"{TEMPLATE}.tool_use"),
            tokenizer=tokenizer,
        )

    @property
    def has_template(self) -> bool:
        """Whether there is a template, of the file or ChatML."""
        return bool(self.source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **variables: Any,
    ) -> list[Piece]:
        """The conversation as text; pieces that the template wrote are trusted.

        Messages, tools and `variables` (such as enable_thinking) must be JSON values, else UsageError is raised.
        `now` is the clock of templates that print a date. Raises TemplateError.
        """
        source = self.tool_source if tools else self.source
        if not source:
            raise TemplateError("the model has no chat template", "continue a plain text instead: -p TEXT without chat")
        if len(source) > LONGEST_TEMPLATE:
            raise TemplateError(f"the chat template has {len(source)} characters, more than {LONGEST_TEMPLATE}")
        values = {
            **variables,
            "messages": list(messages),
            "tools": None if tools is None else list(tools),
            "documents": variables.get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        request = {
            "template": source,
            "variables": values,
            "tokens": self.tokens,
            "now": (now or datetime.now()).isoformat(),
        }
        reply = self._sandbox.ask(request)
        if "error" in reply:
            raise TemplateError(f"chat template: {reply['error']}")
        return [Piece(text, trusted) for text, trusted in reply["pieces"]]

    def encode(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Token ids of `render` with the same options; BOS is added if the file asks for it, but never twice."""
        assert self.tokenizer is not None, "only a chat of a file has a tokenizer"
        return self.tokenizer.encode_pieces(self.render(messages, **options))


def _source(file: ModelFile, key: str) -> str | None:
    source = file.metadata.get(key)
    if source is not None and not isinstance(source, str):
        raise ModelError(file.path, key, "must be a string")
    return source
