"""A toy project under the ledger: tasks -> model and curves -> report, as JSON files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from kedro.framework.hooks.markers import hook_impl
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline, node
from kedro.pipeline.node import Node
from kedro.runner import SequentialRunner

from worldwise.config import FrozenConfig
from worldwise.ledger.plan import Codec, NodePlan, Planner, Surroundings
from worldwise.ledger.run import LedgerRun

NAMES = ("tasks", "model", "curves", "report", "notes")
EARLIER, OWN, LATER = (f"2026-01-0{day}T00.00.00.000Z" for day in (1, 2, 3))


class TrainConfig(FrozenConfig):
    """Parameters of the toy's training."""

    rate: float = 0.1
    steps: int = 1


@dataclass
class Code:
    """What stands for the code of the nodes."""

    digests_by_node: dict[str, dict[str, str]] = field(default_factory=dict)

    def digests(self, *functions: Callable[..., Any]) -> dict[str, str]:
        """As `CodeSet`."""
        found = [self.digests_by_node.get(own.__name__, {"toy": "1"}) for own in functions]
        return {module: digest for own in found for module, digest in own.items()}

    def save(self) -> None:
        """Keeps nothing."""


class Signing:
    def __init__(self, run: LedgerRun) -> None:
        self.run = run

    @hook_impl
    def before_dataset_loaded(self, dataset_name: str) -> None:
        self.run.check(dataset_name)

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        self.run.sign(node)


@dataclass
class Toy:
    """The project.

    Attributes:
        root: where it stores.
        train: parameters.
        raw: node -> what it reads outside of the catalog.
        code: of the nodes.
        ran: nodes of the last run.
        meanwhile: happens while `train` runs.
        knows_all: whether a run of a part knows the nodes of the rest.
        unversioned: datasets that are kept without versions.
        codecs: as `Surroundings` has them.
        notes: of the last run.
    """

    root: Path
    train: TrainConfig = field(default_factory=TrainConfig)
    raw: dict[str, dict[str, str]] = field(default_factory=dict)
    code: Code = field(default_factory=Code)
    ran: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    knows_all: bool = False
    unversioned: tuple[str, ...] = ()
    codecs: dict[type, Codec] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def catalog(self, version: str, load: Mapping[str, str] | None = None) -> DataCatalog:
        """The catalog of a run."""
        entries = {
            name: {
                "type": f"worldwise.datasets.{'optional.Optional' if name == 'notes' else 'atomic.'}JSONDataset",
                "filepath": (self.root / f"{name}.json").as_posix(),
                "versioned": name not in self.unversioned,
            }
            for name in NAMES
        }
        return DataCatalog.from_config(entries, load_versions=dict(load or {}), save_version=version)

    def pipeline(self) -> Pipeline:
        """Its three nodes."""

        def prepare() -> str:
            self.ran.append("prepare")
            return "tasks"

        def train(tasks: str, config: TrainConfig) -> tuple[str, str]:
            self.ran.append("train")
            self.meanwhile()
            return f"model of {tasks} at {config.rate}", "curves"

        def report(tasks: str, model: str, curves: str, notes: str | None) -> list[str | None]:
            self.ran.append("report")
            return [tasks, model, curves, notes]

        return Pipeline(
            [
                node(prepare, None, "tasks", name="prepare"),
                node(train, ["tasks", "params:train"], ["model", "curves"], name="train"),
                node(report, ["tasks", "model", "curves", "notes"], "report", name="report"),
            ]
        )

    def around(self, version: str, load: Mapping[str, str] | None = None) -> Surroundings:
        """What a run is made with."""
        catalog = self.catalog(version, load)
        catalog["params:train"] = self.train
        code: Any = self.code
        return Surroundings(
            catalog,
            {"train": self.train},
            code,
            lambda own, blocks: self.raw.get(own.name, {}),
            self.codecs,
            registered=self.pipeline().nodes if self.knows_all else (),
        )

    def run(self, version: str, only_missing: bool = True, nodes: tuple[str, ...] = (), **load: str) -> list[str]:
        """A run; returns the nodes that ran."""
        self.ran.clear()
        around = self.around(version, load)
        run = LedgerRun(around, version)
        pipeline = self.pipeline()
        pipeline = pipeline.only_nodes(*nodes) if nodes else pipeline
        run.begin(pipeline, only_missing)
        self.notes = list(run.notes)
        manager = _create_hook_manager()
        _register_hooks(manager, (Signing(run),))
        try:
            SequentialRunner().run(pipeline, around.catalog, manager, only_missing_outputs=only_missing)
        finally:
            run.end()
        return list(self.ran)

    def plan(self, **load: str) -> dict[str, NodePlan]:
        """Node -> its plan."""
        return {own.node: own for own in Planner(self.around(LATER, load)).plan(self.pipeline())}

    def why(self, node_name: str) -> str:
        """Why a node has to run."""
        return "; ".join(self.plan()[node_name].reasons)

    def store(self, version: str, **contents: Any) -> None:
        """Stores versions outside of any run."""
        catalog = self.catalog(version)
        for name, content in contents.items():
            catalog.save(name, content)

    def load(self, name: str, version: str | None = None) -> Any:
        """What is stored."""
        return self.catalog(LATER, {name: version} if version else None).load(name)

    def place(self, name: str, version: str) -> Path:
        """Where a version lies."""
        return self.root / f"{name}.json" / version / f"{name}.json"
