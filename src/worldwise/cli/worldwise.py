"""`kedro worldwise`: the group of the project's own commands."""

from __future__ import annotations

from kedro.framework.cli.utils import LazyGroup

worldwise = LazyGroup(
    name="worldwise",
    help="Get data, check this machine, watch an agent, check a world.",
    lazy_subcommands={
        "check-world": "worldwise.cli.check_world.check_world",
        "data": "worldwise.cli.data.data",
        "doctor": "worldwise.cli.doctor.doctor",
        "play": "worldwise.cli.play.play",
    },
)
