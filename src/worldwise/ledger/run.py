"""One run as the ledger sees it: what it reads, what it need not make, and what its results say of their making."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.ledger.checked import CheckedVersions
from worldwise.ledger.code import import_all
from worldwise.ledger.pins import pin_cached, pin_newest
from worldwise.ledger.plan import NodePlan, Planner, Surroundings
from worldwise.ledger.provenance import set_made
from worldwise.ledger.rest import look_ahead, made_otherwise
from worldwise.ledger.stored import pinned_version, versioned


@dataclass
class LedgerRun:
    """A run.

    Attributes:
        around: what it is made with.
        run_id: name of the versions that it stores.
        state: further fields of `Provenance`: commit and packages.
        notes: after `begin`, what it reads although it was made with other parameters, in words.
    """

    around: Surroundings
    run_id: str
    state: dict[str, Any] = field(default_factory=dict)
    checked: CheckedVersions = field(default_factory=CheckedVersions)
    notes: Sequence[str] = ()

    def begin(self, pipeline: Pipeline, only_missing: bool) -> Sequence[NodePlan]:
        """Pins all versions. Returns the plan of `--only-missing-outputs`, nothing for a run of all nodes.

        Raises:
            DamagedVersionError: a version that `--load-versions` names is not what was stored.
            PlanError: it cannot serve.
        """
        catalog = self.around.catalog
        for name in sorted(pipeline.datasets()):
            dataset = versioned(catalog, name)
            if dataset is not None and pinned_version(dataset) is not None:
                # Now, and not hours later when its turn comes.
                self.check(name)
        code = {node.name: self.around.code_of(node) for node in pipeline.nodes}
        self.around.code.save()
        if not only_missing:
            self.notes = made_otherwise(self.around, pipeline, pipeline.inputs())
            pin_newest(pipeline, catalog)
            self._import(code.values())
            return []
        outlook = look_ahead(self.around, pipeline)
        self.notes = outlook.notes
        pin_cached(pipeline, catalog, outlook.plans, outlook.chosen)
        self._import(code[plan.node] for plan in outlook.plans if plan.reasons)
        return outlook.plans

    def _import(self, code: Iterable[Mapping[str, str]]) -> None:
        """Takes the code of nodes in, as it was when their keys were made: edits come with the next run."""
        import_all(sorted({module for own in code for module in own}))

    def check(self, dataset: str) -> None:
        """Before a dataset is loaded.

        Raises:
            DamagedVersionError: it is not what was stored.
        """
        self.checked.check(dataset, self.around.catalog)

    def sign(self, node: Node) -> None:
        """Before a node runs: what is stored from now on says what made it."""
        # Inputs that this run made itself are known only now, so every node has a planner of its own.
        key = Planner(self.around).key(node)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        outputs = tuple(name for name in node.outputs if versioned(self.around.catalog, name) is not None)
        set_made(key.made(run_id=self.run_id, started_at=now, outputs=outputs, **self.state))

    def end(self) -> None:
        """After the last node, or the one that failed."""
        set_made(None)
