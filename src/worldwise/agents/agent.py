"""An agent: what the model reads, and what its answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from worldwise.agents.chat import ChatFormat, ChatTokenizer, Message, Rendered, marked
from worldwise.agents.config import AgentConfig
from worldwise.agents.errors import AgentError
from worldwise.agents.parsing import (
    ACTION,
    END_ACTION,
    END_NEXT_STATE,
    END_THINK,
    NEXT_STATE,
    THINK,
    read_plain,
    read_prediction,
    read_predictions,
    read_tagged,
)
from worldwise.agents.prompts import Prompts
from worldwise.episodes.record import Turn
from worldwise.episodes.sequences import Role
from worldwise.worlds.contract import Info, WorldFamily

IntArray = NDArray[np.int32]

_REMEMBERED = 32768
"""Rendered messages and parsed responses kept; worlds repeat their texts a lot."""


@dataclass(frozen=True, slots=True)
class Context:
    """Tokens to put before the next response.

    Attributes:
        ids: int32 [C], read-only.
        restart: they are the whole context; otherwise they continue what the model has read and said.
        observation_span: [start, end) inside `ids` of the observation's own tokens; (0, 0) if not in them.
    """

    ids: IntArray
    restart: bool
    observation_span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """What a response says.

    Attributes:
        text: the response as text, without its end token.
        action: the command for the world, "" if the response holds none.
        action_span: [start, end) of its tokens inside the response.
        format_valid: the response has the demanded form.
        finished: it ended by itself, with a stop token.
    """

    text: str
    action: str
    action_span: tuple[int, int]
    format_valid: bool
    finished: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole conversation with given commands: a row for supervised training.

    Attributes:
        token_ids: int32 [T].
        roles: int8 [T], `Role` of each token; given commands and their end tokens are responses.
        turns: int32 [T], turn index of each token.
    """

    token_ids: IntArray
    roles: NDArray[np.int8]
    turns: IntArray


class Agent:
    """Prompts, chat template and parsing of one configuration. Holds no episode's state.

    Args:
        tokenizer: a `transformers` fast tokenizer with a chat template.
        config: how to ask and what to expect.
        family: the world that is played.

    Attributes:
        end_id: the token that ends a response.
        stop_ids: all tokens that end a response.
        prefix_preserving: whether the chat template lets a conversation of plain commands grow by appending. In
            play that is decided anew behind every response: where the template would not show it as it was said
            (a thought is dropped, blanks are trimmed), the next turn of a `conversation` restarts from the
            re-rendered chat (`Context.restart`).

    Raises:
        AgentError: the chat template cannot serve, or examples are missing.
    """

    def __init__(self, tokenizer: ChatTokenizer, config: AgentConfig, family: WorldFamily) -> None:
        self.config = config
        self._family = family
        self._prompts = Prompts(config, family.name)
        command = f"{ACTION}go on{END_ACTION}" if config.action_format == "tags" else "go on"
        sample = f"{THINK}why not{END_THINK}{command}" if config.style == "papers" else command
        self._chat = ChatFormat(tokenizer, config.template_options, self._prompts.system())
        self.end_id = self._chat.end_id
        self.stop_ids = tuple(sorted({*self._chat.stop_ids, *config.stop_ids}))
        self.prefix_preserving = self._chat.grows(self._chat.encode(sample))
        self._first = lru_cache(_REMEMBERED)(self._render_first)
        self._next = lru_cache(_REMEMBERED)(self._render_next)
        self._read = lru_cache(_REMEMBERED)(self._parse)
        self._command_ids = lru_cache(_REMEMBERED)(self._encode_command)
        self._sequences = lru_cache(_REMEMBERED)(self._encode_commands)
        self._grows = lru_cache(_REMEMBERED)(self._chat.grows)
        self._suffix = lru_cache(8)(self._render_suffix)

    def first_context(self, observation: str, info: Info) -> Context:
        """The context of an episode's first turn."""
        shown = self._listed(info.admissible)
        if self.config.context == "window":
            return self._window((), observation, shown)
        return self._first(observation, shown)

    def next_context(self, history: Sequence[Turn], observation: str, info: Info) -> Context:
        """The context of a later turn.

        Args:
            history: all turns so far, at least one.
            observation: the world's answer to the last of them.
            info: what the world said beside it.
        """
        shown = self._listed(info.admissible)
        if self.config.context == "window":
            return self._window(history, observation, shown)
        if not self._goes_on(history[-1]):
            return self._rebuilt(history, observation, shown)
        return self._next(observation, shown, history[-1].finished)

    def following_context(self, turn: Turn) -> Context:
        """What shows a turn's next observation right behind its response, whatever the context is."""
        return self._next(turn.next_observation, None, turn.finished)

    def parse(self, response_ids: IntArray) -> ParsedAction:
        """The command in a response.

        Args:
            response_ids: int32 [R], as sampled, the stop token included if there was one.
        """
        return self._read(tuple(response_ids.tolist()))

    def command_ids(self, command: str) -> tuple[int, ...]:
        """The response that says a command in this agent's form, its end token included (no thought)."""
        return self._command_ids(command)

    def allowed_sequences(self, admissible: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The responses that say one of the admissible commands, hidden commands left out.

        Raises:
            AgentError: nothing is left.
        """
        return self._sequences(tuple(admissible))

    def predict_suffix(self, finished: bool = True, horizon: int = 1) -> IntArray:
        """What asks for the next observation behind a response: int32 [S], read-only.

        Args:
            finished: the response ended with a stop token (False: one is put first).
            horizon: observations that are asked for, one behind the other. The plain style has but one question, and
                models that know it answer with one.
        """
        return self._suffix(finished, horizon)

    def predict_prompt(self, conversation_ids: IntArray) -> IntArray:
        """A conversation that ends with a response, then the question for the next observation: int32 [P]."""
        return np.concatenate([conversation_ids, self.predict_suffix(int(conversation_ids[-1]) in self.stop_ids)])

    def prediction_answer_ids(self, target: str) -> IntArray:
        """The answer a prediction should give, its end token included: int32 [A].

        With `prediction_thinking` an empty thought comes first (RWML's supervised control, appendix of
        arXiv 2602.05842).
        """
        thought = f"{THINK}{END_THINK}" if self.config.thinks_before_predicting else ""
        text = f"{thought}{NEXT_STATE}{self._chat.harmless(target)}{END_NEXT_STATE}"
        return np.asarray([*self._chat.encode(text), self.end_id], dtype=np.int32)

    def parse_prediction(self, text: str) -> str | None:
        """The predicted observation in a response text, or None if it holds none in the demanded form."""
        return read_prediction(text)

    def parse_predictions(self, text: str, count: int) -> list[str | None]:
        """The first `count` predicted observations in a response text, None where one is missing."""
        return read_predictions(text, count)

    @property
    def can_reflect(self) -> bool:
        """Whether the style has words to ask about failures; the plain one has not."""
        return self._prompts.can_reflect

    def reflect_prompt(self, turns: Sequence[Turn], modes: Sequence[str], skipped: int = 0) -> IntArray:
        """A chat of one message that shows a failed episode and asks why it failed: int32 [P].

        Args:
            turns: all of the episode.
            modes: names of failures to choose from.
            skipped: so many turns at its beginning are not shown.
        """
        shown = [
            {
                "number": turn.index + 1,
                "observation": self._chat.harmless(turn.observation),
                "action": self._chat.harmless(turn.action),
            }
            for turn in turns[skipped:]
        ]
        task = self._chat.harmless(self._family.task_text(turns[0].observation))
        last = self._chat.harmless(turns[-1].next_observation)
        return self._chat.opening(self._prompts.reflect(task, shown, skipped, last, modes)).ids

    def select_prompt(
        self, task: str, mode: str, detail: str, candidates: Sequence[tuple[str, str, str]], most: int
    ) -> IntArray:
        """A chat of one message that asks which tasks are like one that failed: int32 [P].

        Args:
            task, mode, detail: of the failure.
            candidates: (task, mode, detail) each.
            most: how many to name.
        """
        safe = self._chat.harmless
        shown = [
            {"number": number, "task": safe(own[0]), "mode": own[1], "detail": safe(own[2])}
            for number, own in enumerate(candidates, start=1)
        ]
        return self._chat.opening(self._prompts.select(safe(task), mode, safe(detail), shown, most)).ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, nothing added."""
        return self._chat.encode(text)

    def decode(self, ids: Sequence[int] | IntArray) -> str:
        """Text of token ids without a stop token at their end; other special tokens are shown."""
        plain = [int(i) for i in ids]
        return self._chat.decode(plain[:-1] if plain and plain[-1] in self.stop_ids else plain)

    def transcript(
        self, observations: Sequence[str], actions: Sequence[str], infos: Sequence[Info] | None = None
    ) -> Transcript:
        """A conversation in which the agent says given commands, in the same tokens as in play.

        Args:
            observations: before each action, and, if wanted, the one after the last action.
            actions: the commands.
            infos: beside each observation; needed only where admissible commands are listed.

        Raises:
            AgentError: a `window` context, a template that does not preserve prefixes, wrong lengths.
        """
        if self.config.context == "window" or not self.prefix_preserving:
            raise AgentError(
                "a transcript is one growing chat: it needs agent.context=conversation and a chat template "
                "that lets a chat grow by appending"
            )
        if len(observations) not in (len(actions), len(actions) + 1) or not observations:
            raise AgentError(
                f"observations has {len(observations)} entries for {len(actions)} actions: give one before "
                "each action and at most one after the last"
            )
        ids: list[IntArray] = []
        roles: list[NDArray[np.int8]] = []
        turns: list[IntArray] = []
        for index, observation in enumerate(observations):
            shown = self._listed(infos[index].admissible) if infos is not None else None
            context = self._next(observation, shown, True) if index else self._first(observation, shown)
            said = self._command_ids(actions[index]) if index < len(actions) else ()
            response = np.asarray(said, dtype=np.int32)
            role = np.full(len(context.ids) + len(response), Role.CONTEXT, dtype=np.int8)
            role[slice(*context.observation_span)] = Role.OBSERVATION
            role[len(context.ids) :] = Role.RESPONSE
            ids += [context.ids, response]
            roles.append(role)
            turns.append(np.full(len(role), index, dtype=np.int32))
        return Transcript(np.concatenate(ids), np.concatenate(roles), np.concatenate(turns))

    def _listed(self, admissible: Sequence[str] | None) -> tuple[str, ...] | None:
        """The admissible commands that a prompt shows, None for no list."""
        if not self.config.list_admissible or admissible is None:
            return None
        return tuple(command for command in admissible if command not in self.config.hidden_commands)

    def _safe(self, commands: Sequence[str] | None) -> list[str] | None:
        return None if commands is None else [self._chat.harmless(command) for command in commands]

    def _render_first(self, observation: str, admissible: tuple[str, ...] | None) -> Context:
        content = self._prompts.first(marked(self._chat.harmless(observation)), self._safe(admissible))
        return _context(self._chat.opening(content), restart=True)

    def _render_next(self, observation: str, admissible: tuple[str, ...] | None, finished: bool) -> Context:
        content = self._prompts.next(marked(self._chat.harmless(observation)), self._safe(admissible))
        return _context(self._chat.user_turn(content, finished), restart=False)

    def _window(self, history: Sequence[Turn], observation: str, admissible: Sequence[str] | None) -> Context:
        first = history[0].observation if history else observation
        shown = history[max(0, len(history) - self.config.history) :]
        content = self._prompts.window(
            task=self._chat.harmless(self._family.task_text(first)),
            history=[
                {
                    "number": turn.index + 1,
                    "observation": self._chat.harmless(turn.observation),
                    "action": self._chat.harmless(turn.action),
                }
                for turn in shown
            ],
            steps=len(history),
            observation=marked(self._chat.harmless(observation)),
            admissible=self._safe(admissible),
        )
        return _context(self._chat.opening(content), restart=True)

    def _goes_on(self, turn: Turn) -> bool:
        """Whether the chat template would show a response, and its end, as it was said."""
        said = tuple(turn.response_ids.tolist())
        if not turn.finished:
            return self._grows(said)
        return said[-1] == self.end_id and self._grows(said[:-1])

    def _rebuilt(self, history: Sequence[Turn], observation: str, admissible: Sequence[str] | None) -> Context:
        """The whole chat rendered anew, for where it cannot go on by appending."""
        messages: list[Message] = []
        for turn in history:
            render = self._prompts.next if messages else self._prompts.first
            content = render(self._chat.harmless(turn.observation), self._safe(self._listed(turn.admissible)))
            messages.append({"role": "user", "content": content})
            messages.append({"role": "assistant", "content": self._chat.harmless(turn.response_text)})
        content = self._prompts.next(marked(self._chat.harmless(observation)), self._safe(admissible))
        messages.append({"role": "user", "content": content})
        return _context(self._chat.conversation(messages), restart=True)

    def _parse(self, ids: tuple[int, ...]) -> ParsedAction:
        finished = bool(ids) and ids[-1] in self.stop_ids
        said = ids[:-1] if finished else ids
        text = self._chat.decode(said)
        control = self._chat.first_control(text)
        if self.config.action_format == "tags":
            found = read_tagged(text, finished, control, thought=self.config.style == "papers")
        else:
            found = read_plain(text, finished, control)
        span = (self._token_at(said, found.start, True), self._token_at(said, found.end, False))
        command = found.command.lower() if self.config.lower_case else found.command
        return ParsedAction(text, command, span if found.command else (0, 0), found.valid, finished)

    def _token_at(self, ids: tuple[int, ...], position: int, begins: bool) -> int:
        """The token that holds a character's beginning, or behind which a stretch of characters ends.

        Bisects over decoded beginnings: their lengths do not fall, and nothing has to be encoded again.
        """
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + begins) // 2
            length = len(self._chat.decode(ids[:middle]))
            if begins:
                low, high = (middle, high) if length <= position else (low, middle - 1)
            else:
                low, high = (low, middle) if length >= position else (middle + 1, high)
        return low

    def _encode_command(self, command: str) -> tuple[int, ...]:
        said = f"{ACTION}{command}{END_ACTION}" if self.config.action_format == "tags" else command
        return (*self._chat.encode(self._chat.harmless(said)), self.end_id)

    def _encode_commands(self, admissible: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        kept = [command for command in admissible if command not in self.config.hidden_commands]
        if not kept:
            raise AgentError(
                "restricted decoding needs admissible commands, and the world gave none: set "
                "agent.restrict_to_admissible=false, or shorten agent.hidden_commands"
            )
        return tuple(self._command_ids(command) for command in kept)

    def _render_suffix(self, finished: bool, horizon: int) -> IntArray:
        return self._chat.user_turn(self._prompts.predict(horizon), finished).ids


def _context(rendered: Rendered, restart: bool) -> Context:
    return Context(rendered.ids, restart, rendered.span)
