"""What a run would do: which nodes have what they make already, and which have to run, and why.

A node is cached where a complete version of each of its outputs stands, all of one run, made with the same key (code,
parameters that change results, what it reads outside of the catalog, content of its inputs). A node below one that has
to run has to run as well.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kedro.io import DataCatalog
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.ledger.code import CodeSet, changed_code
from worldwise.ledger.digests import DigestCache
from worldwise.ledger.keys import NodeKey, differences, semantic
from worldwise.ledger.manifest import InputEntry, Provenance
from worldwise.ledger.stored import (
    StoredVersion,
    Versioned,
    newest,
    pinned_version,
    stored_version,
    stored_versions,
    versioned,
)

_PARAMETER = "params:"
ABSENT = InputEntry(version="", digest="absent")
"""Of an optional dataset that is not stored."""

_UNKNOWN = "unknown"
_SHOWN = 3


class PlanError(Exception):
    """What is asked for cannot be planned; the message says what to do."""


@dataclass(frozen=True)
class NodePlan:
    """What is known of one node.

    Attributes:
        node: its name.
        key: None where an input is still to be made.
        cached: output -> the version that serves; empty where the node has to run.
        reasons: why it has to run, the most telling first; empty where it is cached.
    """

    node: str
    key: NodeKey | None
    cached: Mapping[str, StoredVersion]
    reasons: tuple[str, ...]

    @property
    def is_cached(self) -> bool:
        """Whether the node need not run."""
        return not self.reasons


class Codec(NamedTuple):
    """The functions of the followed package that a dataset reads and writes its content with."""

    reads: Callable[..., Any]
    writes: Callable[..., Any]


@dataclass(frozen=True)
class Surroundings:
    """What a plan is made with.

    Attributes:
        catalog: where the datasets lie.
        values: parameter block -> its validated value.
        code: the package whose code counts.
        raw: name of a node, its parameters -> name of what it reads outside of the catalog -> digest.
        codecs: class of a dataset -> what stands between a node and the file. It counts as code of the nodes that
            read or write such datasets; others hand over what Kedro's own datasets make, or paths.
        files: digests of datasets without versions.
        registered: all nodes of the project, for what a part of its pipelines reads of the rest.
    """

    catalog: DataCatalog
    values: Mapping[str, Any]
    code: CodeSet
    raw: Callable[[Node, Mapping[str, Any]], Mapping[str, str]]
    codecs: Mapping[type, Codec] = field(default_factory=dict)
    files: DigestCache = field(default_factory=DigestCache)
    registered: Sequence[Node] = ()

    def code_of(self, node: Node) -> dict[str, str]:
        """Module -> digest of the code behind what a node makes: its own, and what reads and writes its datasets."""
        reading = [codec.reads for name in node.inputs if (codec := self._codec(name)) is not None]
        writing = [codec.writes for name in node.outputs if (codec := self._codec(name)) is not None]
        return self.code.digests(node.func, *reading, *writing)

    def parameters_of(self, node: Node) -> tuple[dict[str, Any], dict[str, str]]:
        """The parameter blocks that a node takes, and as flat names and texts those that change results."""
        blocks = [name.removeprefix(_PARAMETER) for name in node.inputs if name.startswith(_PARAMETER)]
        given = {block: self.values[block] for block in blocks}
        return given, {name: text for block, value in given.items() for name, text in semantic(block, value).items()}

    def _codec(self, name: str) -> Codec | None:
        dataset = None if name.startswith(_PARAMETER) else self.catalog.get(name)
        return next((codec for kind, codec in self.codecs.items() if isinstance(dataset, kind)), None)


@dataclass
class Planner:
    """Plans the nodes of a pipeline, in their order."""

    around: Surroundings
    chosen: dict[str, InputEntry] = field(default_factory=dict)
    remade: dict[str, str] = field(default_factory=dict)

    def plan(self, pipeline: Pipeline) -> list[NodePlan]:
        """One entry per node, in the order in which they run."""
        plans = [self._node(node) for node in pipeline.nodes]
        self.around.code.save()
        self.around.files.save()
        return plans

    def _node(self, node: Node) -> NodePlan:
        waits = [name for name in node.inputs if name in self.remade]
        key = None if waits else self.key(node)
        outputs = {name: dataset for name in node.outputs if (dataset := versioned(self.around.catalog, name))}
        cached = named(outputs) or (find(key.digest, outputs) if key is not None else {})
        reasons: tuple[str, ...] = ()
        if cached:
            self.chosen |= {name: entry_of(own) for name, own in cached.items()}
        else:
            reasons = tuple(f"{name} is made anew" for name in waits) or why(key, outputs)
            self.remade |= dict.fromkeys(node.outputs, node.name)
        return NodePlan(node.name, key, cached, reasons)

    def key(self, node: Node) -> NodeKey:
        """The key of a node whose inputs are all there."""
        given, parameters = self.around.parameters_of(node)
        inputs = {name: self._input(name) for name in node.inputs if not name.startswith(_PARAMETER)}
        raw = self.around.raw(node, given)
        return NodeKey(node.name, self.around.code_of(node), parameters, raw, inputs)

    def _input(self, name: str) -> InputEntry:
        if name not in self.chosen:
            dataset = versioned(self.around.catalog, name)
            if dataset is None:
                self.chosen[name] = self._without_versions(name)
            else:
                wanted = pinned_version(dataset)
                self.chosen[name] = entry_of(stored_version(dataset, wanted) if wanted else newest(dataset))
        return self.chosen[name]

    def _without_versions(self, name: str) -> InputEntry:
        """A file that others put there counts by its content. What cannot be looked at is never what it was."""
        dataset = self.around.catalog.get(name)
        place = getattr(dataset, "_filepath", None)
        if place is None or getattr(dataset, "_protocol", "file") != "file":
            return InputEntry(version="", digest=f"{_UNKNOWN} {uuid.uuid4().hex}")
        return InputEntry(version="", digest=self.around.files.digest(Path(place)))


def entry_of(found: StoredVersion | None) -> InputEntry:
    """What a node reads of a version, or of what is not stored."""
    return ABSENT if found is None else InputEntry(version=found.version, digest=found.manifest.digest)


def named(outputs: Mapping[str, Versioned]) -> dict[str, StoredVersion]:
    """The versions of all outputs where `--load-versions` names one of them: that one serves, whatever made it.

    Raises:
        PlanError: outputs of different runs are named, or another output of that run is not stored.
    """
    wanted = {name: version for name, dataset in outputs.items() if (version := pinned_version(dataset))}
    if not wanted:
        return {}
    name, version = next(iter(wanted.items()))
    found = {own: known for own, dataset in outputs.items() if (known := stored_version(dataset, version))}
    absent = sorted({*outputs} - {*found})
    if absent or set(wanted.values()) != {version}:
        raise PlanError(
            f"--load-versions names {name}:{version}, and "
            + (f"{', '.join(absent)} of that run is not stored" if absent else "others of another run")
            + ": name versions of one run of which all outputs are there, or leave the node that makes them out "
            "(--from-nodes, --nodes)"
        )
    return found


def find(key: str, outputs: Mapping[str, Versioned]) -> dict[str, StoredVersion]:
    """The newest run's versions of all outputs that were made with this key; empty where there is none."""
    first, *others = outputs or [""]
    for candidate in stored_versions(outputs[first]) if first else ():
        if candidate.manifest.made.key != key:
            continue
        found = {first: candidate}
        for name in others:
            beside = stored_version(outputs[name], candidate.version)
            if beside is None or beside.manifest.made.key != key:
                break
            found[name] = beside
        if len(found) == len(outputs):
            return found
    return {}


def why(key: NodeKey | None, outputs: Mapping[str, Versioned]) -> tuple[str, ...]:
    """Why no stored version serves, by comparison with the newest one."""
    if not outputs:
        return ("it stores nothing",)
    latest = {name: newest(dataset) for name, dataset in outputs.items()}
    missing = sorted(name for name, found in latest.items() if found is None)
    if missing or key is None:
        return (f"{', '.join(missing)} is not stored" if len(missing) == 1 else f"{', '.join(missing)} are not stored",)
    there = (found for found in latest.values() if found is not None)
    made = max(there, key=lambda own: own.manifest.sequence).manifest.made
    return tuple(_changes(made, key)) or ("its outputs are of different runs: it was stopped between them",)


def _changes(made: Provenance, key: NodeKey) -> list[str]:
    if not made.key:
        return ["what is stored was not made by a run"]
    found = [f"parameter {text}" for text in differences(made.parameters, key.parameters)]
    for name in sorted({*made.inputs, *key.inputs}):
        old, new = made.inputs.get(name, ABSENT), key.inputs.get(name, ABSENT)
        if old.digest != new.digest:
            found.append(f"input {name} from {_named(old)} to {_named(new)}")
    changed = sorted(name for name in {*made.raw, *key.raw} if made.raw.get(name) != key.raw.get(name))
    found += [f"{name} has changed" for name in changed]
    code = changed_code(made.code, key.code)
    if code:
        more = f" and {len(code) - _SHOWN} more" if len(code) > _SHOWN else ""
        found.append(f"code of {', '.join(code[:_SHOWN])}{more}")
    return found


def _named(entry: InputEntry) -> str:
    """An input in words."""
    if entry.version or entry == ABSENT:
        return entry.version or "nothing"
    return "what has no file to compare" if entry.digest.startswith(_UNKNOWN) else f"a file {entry.digest[:12]}"
