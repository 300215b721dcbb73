"""The project's commands, as Kedro finds them: `kedro run` with short errors, and `kedro worldwise`.

Nothing heavy is imported before a command runs.
"""

from kedro.framework.cli.utils import CONTEXT_SETTINGS, LazyGroup

cli = LazyGroup(
    name="kedro",
    context_settings=CONTEXT_SETTINGS,
    lazy_subcommands={"run": "worldwise.cli.run.run", "worldwise": "worldwise.cli.worldwise.worldwise"},
)
"""What `kedro` reads from a project's `cli` module."""
