"""What a part of the project's pipelines reads of the rest: stored versions that no node of this run makes.

A run of everything that goes back to earlier parameters finds the earlier versions. A part of it has to read the same
ones, not the newest, which may have been made with other parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.ledger.keys import differences
from worldwise.ledger.lineage import Ancestor, lineage
from worldwise.ledger.manifest import InputEntry
from worldwise.ledger.plan import NodePlan, PlanError, Planner, Surroundings, entry_of
from worldwise.ledger.stored import StoredVersion, newest, pinned_version, versioned


@dataclass(frozen=True)
class Outlook:
    """What `--only-missing-outputs` would do with a pipeline.

    Attributes:
        plans: of its nodes, in the order in which they run.
        chosen: dataset -> what is read of it.
        notes: what was made with other parameters and is read all the same, in words.
    """

    plans: Sequence[NodePlan]
    chosen: Mapping[str, InputEntry]
    notes: Sequence[str]


def look_ahead(around: Surroundings, pipeline: Pipeline) -> Outlook:
    """Plans a pipeline; its inputs are what a run of the whole project would read now, else the newest.

    Raises:
        PlanError: `--load-versions` names what cannot serve.
    """
    serving, notes = _serving(around, pipeline)
    planner = Planner(around, dict(serving))
    plans = planner.plan(pipeline)
    stale = {plan.node for plan in plans if not plan.is_cached}
    read = {name for node in pipeline.nodes if node.name in stale for name in node.inputs}
    notes += made_otherwise(around, pipeline, read - serving.keys())
    return Outlook(plans, planner.chosen, notes)


def made_otherwise(around: Surroundings, pipeline: Pipeline, names: Collection[str]) -> list[str]:
    """One sentence for each input of a pipeline whose newest version goes back to other parameters than those of now.

    Args:
        around: what is planned with.
        pipeline: what will run; what it makes itself is no input.
        names: the inputs to look at.
    """
    return [note for name in _free(around, sorted(pipeline.inputs() & set(names))) for note in _note(around, name)]


def _note(around: Surroundings, name: str) -> Iterator[str]:
    found = _newest(around, name)
    if found is None:
        return
    changed = [(own, texts) for own in lineage(around.catalog, name, found.version) if (texts := _changed(around, own))]
    if not changed:
        return
    # The one that comes first in the pipelines: what was made from it is another thing as well.
    first, texts = max(changed, key=lambda own: own[0].depth)
    assert first.found is not None
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    source = "" if first.dataset == name else f"{first.dataset}:{first.version}, where "
    yield (
        f"{name}:{found.version} is read, which was made with other parameters than those of now: {source}"
        f"parameter {texts[0]}{more}. `kedro worldwise lineage {name}:{found.version} --parameters` shows all; to have "
        f"it made anew, run {first.found.manifest.made.node} and what comes after it as well"
    )


def _changed(around: Surroundings, ancestor: Ancestor) -> list[str]:
    """In which parameters the making of a version differs from what its node would do now."""
    made = None if ancestor.found is None or ancestor.shown else ancestor.found.manifest.made
    node = None if made is None else next((own for own in around.registered if own.name == made.node), None)
    return [] if made is None or node is None else differences(made.parameters, around.parameters_of(node)[1])


def _serving(around: Surroundings, pipeline: Pipeline) -> tuple[dict[str, InputEntry], list[str]]:
    """Inputs of which a version stands that a run of the whole project would take for cached, and notes."""
    makers = _makers(around.registered)
    wanted = [name for name in _free(around, pipeline.inputs()) if name in makers and _newest(around, name)]
    nodes: dict[str, Node] = {}
    waiting = list(wanted)
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and maker.name not in nodes:
            nodes[maker.name] = maker
            waiting += _free(around, maker.inputs)
    try:
        plans = Planner(around).plan(Pipeline(list(nodes.values())))
    except (PlanError, ValueError, RuntimeError, OSError) as error:
        # What those nodes need (a model, games) may be absent where this run has no use for it.
        reason = str(error).splitlines()[0]
        return {}, [f"which version of {', '.join(sorted(wanted))} serves is not known ({reason}): the newest is read"]
    cached = {name: found for plan in plans for name, found in plan.cached.items()}
    return {name: entry_of(cached[name]) for name in wanted if name in cached}, []


def _makers(nodes: Iterable[Node]) -> dict[str, Node]:
    """Dataset -> the node that makes it; nodes that share an output with another one are left out."""
    known = {node.name: node for node in nodes}
    counts = Counter(name for node in known.values() for name in node.outputs)
    alone = [node for node in known.values() if all(counts[name] == 1 for name in node.outputs)]
    return {name: node for node in alone for name in node.outputs}


def _newest(around: Surroundings, name: str) -> StoredVersion | None:
    dataset = versioned(around.catalog, name)
    return None if dataset is None else newest(dataset)


def _free(around: Surroundings, names: Iterable[str]) -> list[str]:
    """Those that are kept in versions of which `--load-versions` names none."""
    datasets = {name: versioned(around.catalog, name) for name in names if not name.startswith("params:")}
    return [name for name, dataset in datasets.items() if dataset is not None and pinned_version(dataset) is None]
