"""The modules of policy RL at work: what they change between play and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from worldwise.agents.agent import Agent
from worldwise.config import derive_seed
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import TrainingSequence
from worldwise.stages.actor import Actor, StageContext
from worldwise.stages.agent_in_world import AgentInWorld
from worldwise.stages.encoder import SentenceEncoder
from worldwise.stages.errors import StageError
from worldwise.stages.estimators import EstimatorConfig
from worldwise.stages.foresight import asking, factors_of_steps, foresight_numbers, scored, with_paid_foresight
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.paw import held_out_sequences, mark
from worldwise.stages.policy_rows import learner_rows
from worldwise.worlds.contract import Task

if TYPE_CHECKING:
    from worldwise.training.learner import Learner

_RETURN = "paw_mean_return"
_CURRICULUM = "agent_in_world"

Numbers = dict[str, float]


@dataclass
class PolicyModules:
    """The modules that are on; with none of them everything is as plain policy RL has it.

    Attributes:
        config: which ones.
        estimator: how returns become advantages.
        context: world, seed and settings of play.
        version: name of the run's random streams.
        others: numbers that a resumed training needs; written here.
        held_out: what PaW's world model is measured on.
        curriculum: Agent-In-World, where it is on and prepared.
    """

    config: ModulesConfig
    estimator: EstimatorConfig
    context: StageContext
    version: str
    others: dict[str, float]
    held_out: list[TrainingSequence] = field(default_factory=list)
    curriculum: AgentInWorld | None = None

    def playing(self, turn_limit: int) -> StageContext:
        """The context in which training episodes are played.

        Args:
            turn_limit: most turns of an episode.
        """
        foresight = self.config.world_in_agent
        if foresight is None:
            return self.context
        return replace(self.context, rollout=asking(self.context.rollout, foresight, turn_limit))

    def prepare(self, agent: Agent, tasks: Sequence[Task], held_out: Sequence[Task], notes: Mapping[str, Any]) -> None:
        """Before the first iteration of this process.

        Args:
            agent: prompts.
            tasks: that are trained on.
            held_out: that never are.
            notes: what `notes` said before a training that goes on was stopped; empty at the beginning.

        Raises:
            StageError: a module wants what the agent or the encoder cannot give.
        """
        paw, curriculum = self.config.paw, self.config.agent_in_world
        if paw is not None and paw.held_out_every:
            seed = derive_seed(self.context.seed, self.version, "held_out")
            self.held_out = held_out_sequences(agent, self.context.family, held_out[: paw.held_out_tasks], seed)
        if curriculum is None:
            return
        if "model" in (curriculum.judge, curriculum.retrieval) and not agent.can_reflect:
            raise StageError(
                f"{self.version}: modules.agent_in_world wants the model to judge (judge={curriculum.judge}, "
                f"retrieval={curriculum.retrieval}) and agent.style={agent.config.style} has no words for it: set both "
                "to auto, or agent.style to instruct"
            )
        encoder = SentenceEncoder(curriculum.encoder) if curriculum.retrieval == "embedding" else None
        seed = derive_seed(self.context.seed, self.version, "agent_in_world")
        self.curriculum = AgentInWorld(curriculum, self.context.family, tasks, seed, encoder)
        if _CURRICULUM in notes:
            self.curriculum.take(notes[_CURRICULUM])

    def notes(self) -> dict[str, Any]:
        """What a training that goes on needs, and what is stored with the curves, as JSON holds it."""
        return {} if self.curriculum is None else {_CURRICULUM: self.curriculum.content()}

    def chosen(self, count: int, iteration: int) -> tuple[list[Task], Numbers] | None:
        """The tasks that a curriculum wants to be played, and numbers of the choice; None without one."""
        return None if self.curriculum is None else self.curriculum.choose(count, iteration)

    def looked_back(self, episodes: Sequence[Episode], actor: Actor, iteration: int) -> Numbers:
        """After the update: what a curriculum makes of the episodes."""
        return {} if self.curriculum is None else self.curriculum.learn(episodes, actor, iteration)

    def judged(self, episodes: list[Episode], iteration: int) -> tuple[list[Episode], Numbers]:
        """Episodes that were just played, with the scores of their predictions, and what curves show of them."""
        foresight = self.config.world_in_agent
        if foresight is None:
            return episodes, {}
        found = scored(episodes, foresight, self._seed("foresight", iteration))
        return found, foresight_numbers(found, foresight)

    def rows(self, episodes: Sequence[Episode], learner: Learner, agent: Agent) -> list[TrainingSequence]:
        """As `learner_rows`, with what foresight earned."""
        foresight, paid, factors = self.config.world_in_agent, episodes, None
        if foresight is not None and self._multiplies_steps():
            factors = factors_of_steps(episodes, foresight)
        elif foresight is not None:
            paid = with_paid_foresight(episodes, foresight)
        state_key = self.context.family.canonical_state
        outcomes = self.config.paw is not None
        return learner_rows(paid, self.estimator, learner, agent, state_key, outcomes, factors)

    def marked(
        self, sequences: list[TrainingSequence], episodes: Sequence[Episode], learner: Learner, iteration: int
    ) -> tuple[list[TrainingSequence], Numbers]:
        """The rows with what the world model is to learn, and what curves show of it.

        Args:
            sequences: made by `rows`.
            episodes: that they were made of.
            learner: before its update.
            iteration: number of it.
        """
        paw = self.config.paw
        if paw is None:
            return sequences, {}
        largest = self.context.family.max_return
        made = mark(sequences, episodes, paw, largest, self._seed("paw", iteration), self.others.get(_RETURN))
        if made.mean_return is not None:
            self.others[_RETURN] = made.mean_return
        numbers = made.numbers
        if self.held_out and iteration % paw.held_out_every == 0:
            seen = learner.observation_numbers(self.held_out)
            numbers |= {f"held_out_{name}": value for name, value in seen.items()}
        return made.sequences, numbers

    def _multiplies_steps(self) -> bool:
        foresight = self.config.world_in_agent
        wanted = "auto" if foresight is None else foresight.variant
        return wanted == "step" or (wanted == "auto" and self.estimator.algorithm == "gigpo")

    def _seed(self, name: str, iteration: int) -> int:
        return derive_seed(self.context.seed, self.version, name, iteration)
