"""The prompt templates of a style, as text. They lie in `templates/<style>/*.jinja`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from worldwise.agents.config import AgentConfig
from worldwise.agents.errors import AgentError

TEMPLATES = Path(__file__).parent / "templates"


class Prompts:
    """Renders the messages of one style for one world.

    Args:
        config: the agent's configuration.
        world: the world's name; a style may hold a part for it under `worlds/` and `examples/`.

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

    def predict(self) -> str:
        """The user message that asks for the next observation."""
        return self._render("predict")

    def _render(self, name: str, **variables: object) -> str:
        return self._environment.get_template(f"{name}.jinja").render(**self._constants, **variables)
