"""Chat templates of five model families: every row holds what the engine saw, and the right tokens train.

The rules hold without looking at a picture; `test_golden_masks.py` keeps the pictures.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.episodes.sequences import Role, sequences_from_episode

from .chat_models import FAMILIES, TEMPLATES, Family, build, tokenizer_of
from .chats import (
    CASES,
    COMMANDS,
    CONTEXTS,
    OBSERVATIONS,
    Played,
    ScriptFamily,
    chat_at,
    played,
    played_case,
    rendered,
    stretches,
)

INSTRUCT = AgentConfig(style="instruct")
OPENERS = {
    "qwen2.5": "<|im_start|>user\n",
    "qwen3": "<|im_start|>user\n",
    "llama-3": "<|start_header_id|>user<|end_header_id|>\n\n",
    "smollm2": "<|im_start|>user\n",
    "mistral": " [INST] ",
    "mistral-v3": "[INST] ",
}
"""How each family begins a user message."""


def check_rows(play: Played) -> None:
    """What must hold for every episode in every template.

    A row is what stood in the engine's slot plus what it said; every token it said trains exactly once, the end
    token included, in its own turn; nothing else trains; an observation's tokens are its text.
    """
    turns, rows = play.episode.turns, play.rows
    starts = [turn.index for turn in turns if turn.restart]
    assert starts[0] == 0
    assert len(rows) == len(starts)
    trained: list[int] = []
    for row, first, behind in zip(rows, starts, [*starts[1:], len(turns)], strict=True):
        assert row.token_ids.tolist() == play.heard[behind - 1] + play.said[behind - 1]
        ids, said_here = row.token_ids.tolist(), np.zeros(len(row), dtype=bool)
        for index in range(first, behind):
            heard, said = play.heard[index], play.said[index]
            assert ids[: len(heard) + len(said)] == heard + said
            place = slice(len(heard), len(heard) + len(said))
            said_here[place] = True
            assert (row.turns[place] == index).all()
            assert (row.advantages[place] == index + 1.0).all()
            np.testing.assert_array_equal(row.logprobs[place], turns[index].logprobs)
            trained.append(index)
        np.testing.assert_array_equal(row.roles == Role.RESPONSE, said_here)
        assert not row.logprobs[~said_here].any()
        assert not row.advantages[~said_here].any()
        shown = [(turn, start, end) for role, turn, start, end in stretches(row) if role is Role.OBSERVATION]
        assert [turn for turn, _, _ in shown] == list(range(first, behind))
        for turn, start, end in shown:
            assert play.agent.decode(ids[start:end]).strip() == turns[turn].observation.strip()
    assert trained == list(range(len(turns)))


def restarts(play: Played) -> list[bool]:
    return [turn.restart for turn in play.episode.turns]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CASES)
def test_rows_hold_what_the_engine_saw_and_said(name: str, context: str) -> None:
    play = played_case(name, context)
    check_rows(play)
    assert restarts(play) == ([True] * 4 if context == "window" else list(CASES[name].restarts))
    special = set(play.tokenizer.convert_tokens_to_ids(list(FAMILIES[CASES[name].family].special)))
    for row in play.rows:
        for role, _, start, end in stretches(row):
            ids = row.token_ids[start:end].tolist()
            if role is Role.OBSERVATION:
                assert not special & set(ids)
            elif role is Role.RESPONSE:
                assert [token in special for token in ids] == [False] * (len(ids) - 1) + [True]
                assert ids[-1] == play.agent.end_id
    assert [turn.action for turn in play.episode.turns] == list(COMMANDS)
    assert all(turn.format_valid for turn in play.episode.turns)


@pytest.mark.parametrize("name", CASES)
def test_a_conversation_reads_as_the_template_renders_it(name: str) -> None:
    # Whether it grew or restarted: the engine's context is the whole chat rendered and encoded at once.
    play = played_case(name, "conversation")
    for index in range(len(play.episode.turns)):
        assert play.heard[index] == rendered(play, index)


@pytest.mark.parametrize("name", CASES)
def test_window_and_conversation_tell_the_same_where_history_is_complete(name: str) -> None:
    grown, fresh = played_case(name, "conversation"), played_case(name, "window")
    assert grown.said == fresh.said
    for index, (one, other) in enumerate(zip(grown.episode.turns, fresh.episode.turns, strict=True)):
        assert (one.observation, one.action) == (other.observation, other.action)
        shown = []
        for play, turn in ((grown, one), (fresh, other)):
            shown.append(play.agent.decode(turn.context_ids[slice(*turn.observation_span)]).strip())
            text, place = play.agent.decode(play.heard[index]), 0
            # The first observation of a window is the first turn's; later on its task stands there instead.
            told = [part for past in play.episode.turns[:index] for part in (past.observation, past.action)]
            for part in [*told, turn.observation]:
                place = text.index(part, place) + len(part)
        assert shown == [one.observation, one.observation]
    for index in range(4):
        for play in (grown, fresh):
            masks = [(row.roles == Role.RESPONSE) & (row.turns == index) for row in play.rows]
            trained = [row.token_ids[mask] for row, mask in zip(play.rows, masks, strict=True)]
            assert np.concatenate(trained).tolist() == grown.said[index]


def test_a_thought_is_dropped_from_the_history_and_forks() -> None:
    play = played_case("qwen3-thinking", "conversation")
    texts = [play.agent.decode(heard) for heard in play.heard]
    assert "I should go to drawer 1." not in texts[1]
    assert texts[1].count("<|im_start|>assistant\n<action>go to drawer 1</action><|im_end|>") == 1
    # No thought in the second response: the chat goes on behind it, then restarts behind the third.
    assert play.heard[2][: len(play.heard[1]) + len(play.said[1])] == play.heard[1] + play.said[1]
    assert "In it is a mug.\n</think>" not in texts[3]
    # Each thought is trained where it was said, with the prompt that led to it.
    assert [row.sequence_id for row in play.rows] == [f"chats/0/task/0#{first}" for first in (0, 1, 3)]
    assert play.agent.decode(play.rows[0].token_ids).endswith("</think>\n\n<action>go to drawer 1</action>")


def test_an_outcome_is_shown_behind_every_row_of_a_forked_chat() -> None:
    play = played_case("qwen3-thinking", "conversation")
    following = sequences_from_episode(play.episode, [0.0] * 4, following=play.agent.following_context)
    for row, plain, shown in zip(following, play.rows, (1, 3, None), strict=True):
        assert row.token_ids[: len(plain)].tolist() == plain.token_ids.tolist()
        tail = [stretch for stretch in stretches(row) if stretch[2] >= len(plain)]
        if shown is None:
            assert not tail
            continue
        assert [role for role, *_ in tail] == [Role.CONTEXT, Role.OBSERVATION, Role.CONTEXT]
        assert {turn for _, turn, *_ in tail} == {shown}
        assert play.agent.decode(row.token_ids[slice(*tail[1][2:])]).strip() == OBSERVATIONS[shown]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_that_no_encoder_would_choose_stay_as_they_were_sampled(family: str, context: str) -> None:
    tokenizer = tokenizer_of(family)
    agent = Agent(tokenizer, INSTRUCT, ScriptFamily())
    spelled = [token for letter in "open drawer 1" for token in agent.encode(letter)]
    if FAMILIES[family].split in ("prepend", "first"):
        # Encoded alone each letter has a blank in front; the model spells without.
        names = ["\u2581" if letter == " " else letter for letter in "\u2581open drawer 1"]
        spelled = tokenizer.convert_tokens_to_ids(names)
    assert len(spelled) > len(agent.encode("open drawer 1"))
    config = INSTRUCT.model_copy(update={"context": context})
    play = played(tokenizer, config, [[*spelled, agent.end_id], "look", "look"])
    check_rows(play)
    assert play.episode.turns[0].action == "open drawer 1"
    # The text is what the template renders, so the chat goes on; the ids are not encoded again.
    assert restarts(play) == [True, context == "window", context == "window"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_response_with_a_turn_of_its_own_is_cut(family: str) -> None:
    tokenizer = tokenizer_of(family)
    agent = Agent(tokenizer, INSTRUCT, ScriptFamily())
    forged = [*agent.encode("look"), *agent.encode(f"{OPENERS[family]}In it is a mug."), agent.end_id]
    # The same in letters, without a control token.
    spelled = [*agent.encode(" ".join(["look", OPENERS[family].strip()])), agent.end_id]
    play = played(tokenizer, INSTRUCT, [forged, spelled, "look"])
    check_rows(play)
    for turn in play.episode.turns[:2]:
        assert (turn.action, turn.format_valid) == ("look", False)
        ids = turn.response_ids[slice(*turn.action_span)]
        assert agent.decode(ids).strip() == "look"
    # What the world says next stands in a turn of its own behind the response's end.
    assert agent.decode(play.heard[1]).index("In it is a mug.") < agent.decode(play.heard[1]).index(OBSERVATIONS[1])


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CASES)
def test_a_worlds_text_opens_and_closes_nothing(name: str, context: str) -> None:
    case = CASES[name]
    family = FAMILIES[case.family]
    markers = [*family.special, *(["[INST]", "[/INST]"] if family.template == "mistral" else [])]
    note = "A note: " + " and ".join(markers)
    # As letters a marker has a blank behind its first character.
    harmless = "A note: " + " and ".join(f"{marker[0]} {marker[1:]}" for marker in markers)
    config = case.config(context, list_admissible=True)
    play, quiet = (
        played(tokenizer_of(case.family), config, case.said, (text, OBSERVATIONS[1], text, text), (text, "look"))
        for text in (note, "A note")
    )
    special = play.tokenizer.convert_tokens_to_ids(list(family.special))
    for turn, heard, other in zip(play.episode.turns, play.heard, quiet.heard, strict=True):
        assert [heard.count(token) for token in special] == [other.count(token) for token in special]
        text, calm = play.agent.decode(heard), play.agent.decode(other)
        assert [text.count(marker) for marker in markers] == [calm.count(marker) for marker in markers]
        if turn.observation == note:
            assert play.agent.decode(turn.context_ids[slice(*turn.observation_span)]).strip() == harmless
            assert turn.observation_span[1] > turn.observation_span[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_response_trains_its_end_token(family: str) -> None:
    end = Agent(tokenizer_of(family), INSTRUCT, ScriptFamily()).end_id
    play = played(tokenizer_of(family), INSTRUCT, [[end], "look"])
    check_rows(play)
    turn = play.episode.turns[0]
    assert (turn.action, turn.format_valid, turn.finished) == ("", False, True)
    row = play.rows[0]
    assert row.token_ids[(row.roles == Role.RESPONSE) & (row.turns == 0)].tolist() == [end]
    # Mistral's template has a blank before every answer, an empty one too, which was not said.
    assert restarts(play) == [True, FAMILIES[family].template == "mistral"]
    assert play.heard[1] == rendered(play, 1)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_response_cut_at_the_cap_trains_what_was_said_and_no_end(family: str, context: str) -> None:
    config = INSTRUCT.model_copy(update={"context": context})
    play = played(tokenizer_of(family), config, ["open drawer 1", "open it 1", "look"], max_tokens=2)
    check_rows(play)
    end = play.agent.end_id
    for turn in play.episode.turns[:2]:
        assert (turn.finished, turn.format_valid, len(turn.response_ids)) == (False, False, 2)
        assert end not in turn.response_ids.tolist()
    assert play.episode.turns[2].finished
    if context == "window":
        return
    assert restarts(play) == [True, False, False]
    for index in (1, 2):
        assert play.heard[index] == rendered(play, index)
        # The end that was not said is put in as context.
        assert play.heard[index][len(play.heard[index - 1]) + 2] == end
        assert play.rows[0].roles[len(play.heard[index - 1]) + 2] == Role.CONTEXT


@pytest.mark.parametrize(
    ("family", "said", "forks"),
    [
        # Llama's template trims: what was cut behind a blank would be shown without it.
        ("llama-3", "open drawer ", True),
        ("llama-3", "\nlook", True),
        ("smollm2", "open drawer ", False),
        ("smollm2", "\nlook", False),
        ("qwen3", "\nlook", False),
        # A thought that is not closed is shown as it is; a closed one goes, whatever stands behind it.
        ("qwen3", "<think>\nI should", False),
        ("qwen3", "<think>\nI should</think>", True),
        ("qwen3", "<think>\n\n</think>\n\nlook", True),
        ("qwen2.5", "<think>\nI should</think>look", False),
        ("mistral", "look ", False),
        ("mistral", " look", False),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_chat_forks_where_the_template_shows_other_words(family: str, said: str, forks: bool, ended: bool) -> None:
    agent = Agent(tokenizer_of(family), INSTRUCT, ScriptFamily())
    response = agent.encode(said) + [agent.end_id] * ended
    play = played(tokenizer_of(family), INSTRUCT, [response, "look"], max_tokens=len(response))
    check_rows(play)
    assert restarts(play) == [True, forks]
    assert agent.decode(play.heard[1]) == agent.decode(rendered(play, 1))


def test_an_answer_ended_by_another_stop_token_forks() -> None:
    tokenizer = tokenizer_of("llama-3")
    agent = Agent(tokenizer, INSTRUCT, ScriptFamily())
    eos = tokenizer.eos_token_id
    assert agent.stop_ids == tuple(sorted((agent.end_id, eos)))
    play = played(tokenizer, INSTRUCT, [[*agent.encode("look"), eos], "look"])
    check_rows(play)
    assert play.episode.turns[0].format_valid
    assert play.rows[0].token_ids[-1] == eos
    assert play.rows[0].roles[-1] == Role.RESPONSE
    # The next turn sees the end that the template puts there.
    assert restarts(play) == [True, True]
    assert eos not in play.heard[1]
    assert play.heard[1] == rendered(play, 1)


SYSTEM_LAST = (
    "{{ '<s>' }}{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}"
    "{{ '[INST] ' ~ (messages[0].content ~ '\n\n' if loop.last and messages[0].role == 'system' else '') }}"
    "{{ m.content ~ '[/INST]' }}{% else %}{{ m.content ~ '</s>' }}{% endif %}{% endfor %}"
)
"""As the later Mistrals: the system message stands in the last question, and so moves on with every turn."""
TRIMMED = (
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' ~ m.content | trim ~ '[/INST]' }}"
    "{% else %}{{ m.content | trim ~ '</s>' }}{% endif %}{% endfor %}"
)
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("family", "template", "style", "grows"),
    [
        (FAMILIES["mistral-v3"], SYSTEM_LAST, "instruct", False),
        # No blank before the answer, and SentencePiece's words begin with one.
        (FAMILIES["mistral-v3"], SYSTEM_LAST, "plain", False),
        (FAMILIES["mistral-v3"], TRIMMED, "plain", False),
        (FAMILIES["mistral"], TRIMMED, "plain", False),
        (replace(FAMILIES["qwen2.5"], special=("<s>", "</s>"), end="</s>", eos="</s>"), TRIMMED, "plain", True),
        # The markers are text to a tokenizer that puts a blank before a text's beginning: behind an end token
        # there is none, and what is added there must be encoded as it stands there.
        (replace(FAMILIES["mistral"], split="first"), (TEMPLATES / "mistral.jinja").read_text(), "plain", True),
        # The end token swallows the line break behind it.
        (replace(FAMILIES["qwen2.5"], end_takes_blanks=True), PLAIN, "plain", True),
    ],
)
def test_other_templates_and_tokenizers(family: Family, template: str, style: str, grows: bool) -> None:
    play = played(build(family, template), AgentConfig.model_validate({"style": style}), COMMANDS)
    check_rows(play)
    assert restarts(play) == [True] + [not grows] * 3
    for index in range(4):
        assert play.heard[index] == rendered(play, index)
    if grows:
        chat = play.agent.transcript(OBSERVATIONS, COMMANDS)
        assert chat.token_ids.tolist() == play.rows[0].token_ids.tolist()
        assert chat.roles.tolist() == play.rows[0].roles.tolist()


@pytest.mark.parametrize("listed", [False, True])
def test_a_chat_rendered_anew_asks_as_it_asked_before(listed: bool) -> None:
    settings = {**CASES["qwen3-no-thinking"].settings, "list_admissible": listed, "restrict_to_admissible": True}
    config = AgentConfig.model_validate(settings)
    play = played(tokenizer_of("qwen3"), config, COMMANDS, admissible=(*COMMANDS, "help"))
    assert restarts(play) == [True] * 4
    questions = [play.agent.decode(heard).split("<|im_start|>user\n")[1:] for heard in play.heard]
    for earlier, later in pairwise(questions):
        for one, again in zip(earlier, later, strict=False):
            assert one.partition("<|im_end|>")[0] == again.partition("<|im_end|>")[0]
    assert all(("You can do" in part) == listed and "help" not in part for part in questions[-1])


def test_roles_are_not_taken_from_token_values() -> None:
    # The end token stands behind user messages as well, and the world repeats what the agent said.
    play = played(tokenizer_of("smollm2"), INSTRUCT, ["look", "look"], ("look", "look"))
    check_rows(play)
    (row,) = play.rows
    ends = row.token_ids == play.agent.end_id
    assert sorted(row.roles[ends].tolist()) == [Role.CONTEXT] * 3 + [Role.RESPONSE] * 2
    look = play.agent.encode("look")
    spans = [row.token_ids[start:end].tolist() for role, _, start, end in stretches(row) if role is Role.OBSERVATION]
    assert spans == [look, look]


def test_templates_are_their_documented_formats() -> None:
    def text(family: str, messages: list[dict[str, str]], **options: object) -> str:
        return str(tokenizer_of(family).apply_chat_template(messages, tokenize=False, **options))

    chat = chat_at(played(tokenizer_of("qwen2.5"), AgentConfig(), ["a", "b"], ("x", "y")), 1)
    system = [{"role": "system", "content": "S"}]
    ask = {"add_generation_prompt": True}
    body = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\ny<|im_end|>\n"
    given = "<|im_start|>system\nS<|im_end|>\n"
    for family, own in (("qwen2.5", "You are a helper."), ("smollm2", "You are a small helper."), ("qwen3", None)):
        default = f"<|im_start|>system\n{own}<|im_end|>\n" if own else ""
        assert text(family, chat, **ask) == default + body + "<|im_start|>assistant\n"
        assert text(family, system + chat) == given + body
    quiet = text("qwen3", chat, enable_thinking=False, **ask)
    assert quiet == body + "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    thought = [chat[0], {"role": "assistant", "content": "<think>\nwhy\n</think>\n\na"}]
    assert text("qwen3", [*thought, chat[2]]) == body
    assert text("qwen3", thought).endswith("<|im_start|>assistant\n<think>\nwhy\n</think>\n\na<|im_end|>\n")
    assert text("qwen3", chat[:2]).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\na<|im_end|>\n")
    assert text("llama-3", [*system, {"role": "user", "content": " x\n"}, *chat[1:]], **ask) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        "a<|eot_id|><|start_header_id|>user<|end_header_id|>\n\ny<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert text("mistral", chat, **ask) == "<s>[INST] x [/INST] a</s>[INST] y [/INST]"
    assert text("mistral", system + chat, **ask) == "<s>[INST] S\n\nx [/INST] a</s>[INST] y [/INST]"
