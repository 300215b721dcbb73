"""A tokenizer's chat template as token ids: whole conversations, single user turns, spans.

A conversation's ids are never decoded and encoded again. What a new user turn adds behind a sampled
response is rendered once in a stand-in conversation, from the response's end token on, which is a special
token and so a fixed border for every tokenizer. Where the template would not show the response as it was said
(`ChatFormat.grows`), nothing can be added: the whole chat is rendered anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from worldwise.agents.errors import AgentError

IntArray = NDArray[np.int32]
Message = dict[str, str]

OPEN, CLOSE = "\ufdd0", "\ufdd1"
"""Non-characters of Unicode that mark an observation while templates are rendered; never seen by a model."""

_STAND_IN = "<stand-in response>"
_MARKER = re.compile(r"<\|[^<>|\s]+\|>|\[/?[A-Z_]+\]|<</?[A-Z_]+>>")


class ChatTokenizer(Protocol):
    """What is needed of a `transformers` fast tokenizer."""

    @property
    def backend_tokenizer(self) -> Any: ...

    @property
    def eos_token_id(self) -> Any: ...

    @property
    def apply_chat_template(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """Token ids of a rendered text.

    Attributes:
        ids: int32 [T], read-only.
        span: [start, end) of the tokens that hold characters of the marked observation; (0, 0) if nothing
            was marked. Where a tokenizer merges across its ends (a full stop with the line break behind it),
            the merged token is in the span.
    """

    ids: IntArray
    span: tuple[int, int]


def marked(text: str) -> str:
    """`text` with its core between marks; blanks at its ends stay outside, as templates may trim them."""
    clean = text.replace(OPEN, "").replace(CLOSE, "")
    core = clean.strip()
    if not core:
        return clean
    start = clean.index(core)
    return f"{clean[:start]}{OPEN}{core}{CLOSE}{clean[start + len(core) :]}"


def unmarked(text: str) -> tuple[str, int, int]:
    """`text` without marks, and the [start, end) that the last pair enclosed ((0, 0) if there was none)."""
    start, end = text.rfind(OPEN), text.rfind(CLOSE)
    if start < 0 or end < start:
        return text.replace(OPEN, "").replace(CLOSE, ""), 0, 0
    before = text[:start].replace(OPEN, "").replace(CLOSE, "")
    inside = text[start + 1 : end].replace(OPEN, "").replace(CLOSE, "")
    after = text[end + 1 :]
    return before + inside + after, len(before), len(before) + len(inside)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a template puts around a message, once it is known to take the message as it is.

    Rendering a template costs some 40 us; most put fixed text before and behind. `fixed` is None for
    templates that do more (trimming, say); they are rendered every time. So are messages with a tag in
    them, which some templates treat apart (Qwen3 looks for `<tool_response>`).
    """

    render: Callable[[str], str]
    fixed: tuple[str, str] | None

    @classmethod
    def around(cls, render: Callable[[str], str]) -> _Frame:
        """Finds out by two messages whether a template just frames them."""
        plain, blanks = "a message", " \n two  lines\n "
        before, found, behind = render(plain).partition(plain)
        framed = found and render(blanks) == before + blanks + behind
        return cls(render, (before, behind) if framed else None)

    def put(self, content: str) -> str:
        """The message as the template renders it."""
        if self.fixed is None or "<" in content:
            return self.render(content)
        return self.fixed[0] + content + self.fixed[1]


class ChatFormat:
    """How a tokenizer's chat template looks in tokens.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        options: further variables of the chat template.
        system: content of the system message, or None for none.

    Attributes:
        end_id: the token that ends an assistant message.
        stop_ids: `end_id` and the tokenizer's end-of-sequence token.

    Raises:
        AgentError: no chat template, one that refuses the messages, or one without a special end token.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        options: Mapping[str, bool | int | str],
        system: str | None,
    ) -> None:
        self._source = tokenizer
        self._options = dict(options)
        self._system: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        # A copy of its own: truncation and padding are state of the tokenizer object, which others share.
        self._tokens = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokens.no_truncation()
        self._tokens.no_padding()
        added = self._tokens.get_added_tokens_decoder()
        special = {i: token.content for i, token in added.items() if token.special}
        self.end_id, self._end_text = self._find_end(special)
        eos = tokenizer.eos_token_id
        stops = {self.end_id} if eos is None else {self.end_id, int(eos)}
        self.stop_ids: tuple[int, ...] = tuple(sorted(stops))
        self._control = self._find_control(special.values())
        self._asked = self._first_message("one")
        self._asked_again = [self._behind_response(text) for text in ("two", "three")]
        self._lead = self.encode(self._asked)[-8:]
        self._opening = _Frame.around(self._first_message)
        self._following = _Frame.around(self._behind_response)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without any token added."""
        ids: list[int] = self._tokens.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens shown."""
        return str(self._tokens.decode(ids, skip_special_tokens=False))

    def grows(self, response: Sequence[int]) -> bool:
        """Whether a chat can go on by appending behind a response: the template shows it where it was said, as
        it was said.

        False where the template drops a thought, trims blanks or adds some, or has put words into the
        assistant's mouth that it does not show again (an empty thought).

        Args:
            response: its ids, without the token that ended it.
        """
        # As it reads behind the prompt: some tokenizers drop a blank at the beginning of a text.
        shown = self.decode([*self._lead, *response])[len(self.decode(self._lead)) :]
        grown = self._asked + "".join(shown + behind for behind in self._asked_again)
        first, second, third = ({"role": "user", "content": text} for text in ("one", "two", "three"))
        said = {"role": "assistant", "content": self.decode(response)}
        return grown == self._text([*self._system, first, said, second, said, third], prompt=True)

    def harmless(self, text: str) -> str:
        """`text` in which no turn marker can be read: a world's text must not open or close a message."""
        return self._control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def first_control(self, text: str) -> int:
        """Position of the first turn marker (see `_find_control`) in a text, or -1."""
        match = self._control.search(text)
        return match.start() if match else -1

    def conversation(self, messages: Sequence[Message]) -> Rendered:
        """The system message and `messages` up to the point where the assistant speaks."""
        return self._encode_marked(self._text([*self._system, *messages], prompt=True))

    def opening(self, content: str) -> Rendered:
        """The system message and one user message, up to the point where the assistant speaks."""
        return self._encode_marked(self._opening.put(content))

    def user_turn(self, content: str, finished: bool) -> Rendered:
        """What a user message adds behind a response, up to the point where the assistant speaks again.

        Args:
            content: the message, its observation marked.
            finished: the response before it ended with a stop token (False: one is put first).
        """
        rendered = self._encode_marked(self._following.put(content))
        if not finished:
            return rendered
        # Cut off only now: some tokenizers treat the beginning of a text unlike what stands behind a token.
        start, end = rendered.span
        return Rendered(rendered.ids[1:], (start - 1, end - 1) if end else (0, 0))

    def _encode_marked(self, text: str) -> Rendered:
        plain, start, end = unmarked(text)
        encoding = self._tokens.encode(plain, add_special_tokens=False)
        ids = np.asarray(encoding.ids, dtype=np.int32)
        ids.setflags(write=False)
        offsets = enumerate(encoding.offsets)
        inside = [i for i, (left, right) in offsets if left < end and right > start]
        return Rendered(ids, (inside[0], inside[-1] + 1) if inside else (0, 0))

    def _text(self, messages: Sequence[Message], prompt: bool) -> str:
        try:
            text = self._source.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=prompt, **self._options
            )
        except jinja2.TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise AgentError(
                f"the tokenizer's chat template refuses the roles {roles}: {error}. Take an agent.style "
                "without system message (plain, papers) or a tokenizer with another template"
            ) from error
        except ValueError as error:
            raise AgentError(
                f"the tokenizer has no usable chat template: {error}. Set one in the model folder's "
                "tokenizer_config.json"
            ) from error
        return str(text)

    def _find_end(self, special: Mapping[int, str]) -> tuple[int, str]:
        said = {"role": "assistant", "content": _STAND_IN}
        text = self._text([*self._system, {"role": "user", "content": "-"}, said], prompt=False)
        if _STAND_IN not in text:
            raise AgentError("the chat template leaves out what the assistant said: take another tokenizer")
        tail = text[text.index(_STAND_IN) + len(_STAND_IN) :]
        ids = self.encode(tail)
        if not ids or ids[0] not in special or not tail.startswith(special[ids[0]]):
            raise AgentError(
                f"the chat template ends an assistant message with {tail[:20]!r}, which is no special token: "
                "the model could not say that it is done; give the tokenizer a template with an end token"
            )
        return ids[0], special[ids[0]]

    def _find_control(self, special: Iterable[str]) -> re.Pattern[str]:
        """What no text of a world may say: special tokens, and markers of the template that are plain text to the
        tokenizer (the first Mistral's `[INST]`)."""
        scaffold = self._first_message("-") + self._behind_response("-")
        own = {marker for message in self._system for marker in _MARKER.findall(message["content"])}
        names = {*special, *(set(_MARKER.findall(scaffold)) - own)}
        return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)")

    def _first_message(self, content: str) -> str:
        return self._text([*self._system, {"role": "user", "content": content}], prompt=True)

    def _behind_response(self, content: str) -> str:
        """What the template puts behind a response, its end token included, when a user message follows."""
        stand_in = {"role": "assistant", "content": _STAND_IN}
        before, after = {"role": "user", "content": "-"}, {"role": "user", "content": content}
        text = self._text([*self._system, before, stand_in, after], prompt=True)
        rest = text[text.index(_STAND_IN) + len(_STAND_IN) :]
        if not rest.startswith(self._end_text):
            raise AgentError(
                f"the chat template ends an earlier assistant message with {rest[:20]!r}, the last one with "
                f"{self._end_text!r}: such a chat cannot be continued in tokens; take another tokenizer"
            )
        return rest
