"""The prompt templates of a style, as text. They lie in `templates/<style>/*.jinja`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from worldwise.agents.config import AgentConfig
from worldwise.agents.errors import AgentError

TEMPLATES = Path(__file__).parent / "templates"


def can_reflect(style: str) -> bool:
    """Whether a style has words to ask about failures."""
    return all((TEMPLATES / style / f"{name}.jinja").is_file() for name in ("reflect", "select"))


class Prompts:
    """Renders the messages of one style for one world.

    Args:
        config: the agent's configuration.
        world: the world's name; a style may hold a part for it under `worlds/` and `examples/`.

    Attributes:
        can_reflect: the style asks about failures.

    Raises:
        AgentError: worked examples are asked for and the style has none for this world.
    """

    def __init__(self, config: AgentConfig, world: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES / config.style),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        names = set(self._environment.list_templates())
        if config.examples and f"examples/{world}.jinja" not in names:
            raise AgentError(
                f"agent.examples=true, but agent.style={config.style} has no worked examples for world "
                f"{world!r}: set it to false or write templates/{config.style}/examples/{world}.jinja"
            )
        self._constants: Mapping[str, object] = {
            "world": world,
            "tags": config.action_format == "tags",
            "examples": config.examples,
            "thinking": config.thinks_before_predicting,
        }
        self._has_system = "system.jinja" in names
        self.can_reflect = can_reflect(config.style)

    def system(self) -> str | None:
        """The system message, or None where the style has none."""
        return self._render("system") if self._has_system else None

    def first(self, observation: str, admissible: Sequence[str] | None) -> str:
        """The first user message of a conversation."""
        return self._render("first", observation=observation, admissible=admissible)

    def next(self, observation: str, admissible: Sequence[str] | None) -> str:
        """A later user message of a conversation."""
        return self._render("next", observation=observation, admissible=admissible)

    def window(
        self,
        task: str,
        history: Sequence[Mapping[str, object]],
        steps: int,
        observation: str,
        admissible: Sequence[str] | None,
    ) -> str:
        """The one user message of a `window` context.

        Args:
            task: the goal sentence.
            history: the last turns, oldest first: `number` (from 1), `observation`, `action`.
            steps: turns played so far.
            observation: the current observation.
            admissible: commands to list, or None.
        """
        return self._render(
            "window", task=task, history=history, steps=steps, observation=observation, admissible=admissible
        )

    def predict(self, horizon: int = 1) -> str:
        """The user message that asks for the next observation, or for several in a row."""
        return self._render("predict") if horizon == 1 else self._render("predict_many", horizon=horizon)

    def reflect(
        self, task: str, turns: Sequence[Mapping[str, object]], skipped: int, last: str, modes: Sequence[str]
    ) -> str:
        """The message that asks why an episode failed.

        Args:
            task: the goal sentence.
            turns: `number` (from 1), `observation`, `action`.
            skipped: turns before them that are not shown.
            last: what the world said in the end.
            modes: names of failures to choose from.
        """
        return self._render("reflect", task=task, turns=turns, skipped=skipped, last=last, modes=modes)

    def select(self, task: str, mode: str, detail: str, candidates: Sequence[Mapping[str, object]], most: int) -> str:
        """The message that asks which tasks are like one that failed.

        Args:
            task, mode, detail: of the failure.
            candidates: `number` (from 1), `task`, `mode`, `detail`.
            most: how many to name.
        """
        return self._render("select", task=task, mode=mode, detail=detail, candidates=candidates, most=most)

    def _render(self, name: str, **variables: object) -> str:
        return self._environment.get_template(f"{name}.jinja").render(**self._constants, **variables)
