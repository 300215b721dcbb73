"""What an agent's prompts look like and what it may answer."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from worldwise.config import FrozenConfig

Style = Literal["plain", "instruct", "papers"]


class AgentConfig(FrozenConfig):
    """How a model is asked to act and to predict.

    Attributes:
        style: `plain` shows raw observations and expects the bare command (for a model trained on just that);
            `instruct` explains the game in a system message (for small instruction-tuned models);
            `papers` is the prompt of GiGPO, RWML and Role-Agent: one message a turn, a thought, then a
            tagged action.
        context: `conversation` lets one chat grow, so that cached context is kept between turns;
            `window` builds every turn's prompt from scratch with the last `history` turns.
        history: turns shown in a `window` context, 0..100 (2 in the papers; 4 in their search runs).
        action_format: `plain`, the response is the command; `tags`, the command stands in `<action>` tags.
        list_admissible: show the admissible commands in the prompt. Makes tasks much easier; reports name it.
        restrict_to_admissible: sample only admissible commands. Reports name it, too.
        hidden_commands: commands left out of both lists.
        examples: worked examples in the system message (`instruct` only).
        prediction_thinking: ask for a thought before a prediction, and put an empty one before the target in
            supervised training (as RWML's control does); None = only in style `papers`.
        lower_case: lower-case commands before the world sees them (the papers do, for ALFWorld and WebShop).
        stop_ids: tokens that end a response, beside the chat template's end and the tokenizer's end of sequence. Those
            that a model's generation_config names are added where it acts.
        template_options: further variables of the tokenizer's chat template, for example `enable_thinking`.
    """

    style: Style = "plain"
    context: Literal["conversation", "window"] = "conversation"
    history: int = Field(2, ge=0, le=100)
    action_format: Literal["plain", "tags"] = "plain"
    list_admissible: bool = False
    restrict_to_admissible: bool = False
    hidden_commands: tuple[str, ...] = ("help",)
    examples: bool = False
    prediction_thinking: bool | None = None
    lower_case: bool = False
    stop_ids: tuple[int, ...] = ()
    template_options: dict[str, bool | int | str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.style == "papers" and self.context != "window":
            raise ValueError(
                f"agent.context={self.context} does not go with agent.style=papers, whose prompt is built "
                "from scratch every turn: set agent.context=window"
            )
        if self.style == "papers" and self.action_format != "tags":
            raise ValueError(
                f"agent.action_format={self.action_format} does not go with agent.style=papers: "
                "set agent.action_format=tags"
            )
        if self.style == "papers" and self.restrict_to_admissible:
            raise ValueError(
                "agent.restrict_to_admissible=true does not go with agent.style=papers, whose responses "
                "begin with a free thought: set it to false, or take agent.style=plain or instruct"
            )
        if self.examples and self.style != "instruct":
            raise ValueError(
                f"agent.examples=true needs agent.style=instruct, not {self.style}: only its system message "
                "has room for them"
            )
        return self

    @property
    def thinks_before_predicting(self) -> bool:
        """`prediction_thinking` with its default worked out."""
        return self.style == "papers" if self.prediction_thinking is None else self.prediction_thinking
