"""`kedro worldwise`: the group of the project's own commands."""

from __future__ import annotations

from kedro.framework.cli.utils import LazyGroup

worldwise = LazyGroup(
    name="worldwise",
    help="Get data, check this machine, watch an agent, check a world, see and tend what is stored.",
    lazy_subcommands={
        "check-world": "worldwise.cli.check_world.check_world",
        "data": "worldwise.cli.data.data",
        "doctor": "worldwise.cli.doctor.doctor",
        "lineage": "worldwise.cli.lineage.lineage",
        "plan": "worldwise.cli.plan.plan",
        "play": "worldwise.cli.play.play",
        "store": "worldwise.cli.store.store",
        "sweep": "worldwise.cli.sweep.sweep",
    },
)
