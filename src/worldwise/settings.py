"""Project settings, see https://docs.kedro.org/en/stable/configure/settings/."""

from worldwise.config_loader import WorldwiseConfigLoader
from worldwise.hooks.beside import BesideHooks
from worldwise.hooks.environment import EnvironmentHooks
from worldwise.hooks.interrupt import InterruptHooks
from worldwise.hooks.preflight import PreflightHooks
from worldwise.hooks.progress import ProgressHooks
from worldwise.hooks.unstored import UnstoredHooks
from worldwise.hooks.versions import VersionHooks
from worldwise.tracking.hook import MlflowHooks

# pluggy calls the last one first: parameters are checked before a tracker is opened, and a run is seen to be at work
# before it settles which versions it reads, so that nobody sweeps them away.
HOOKS = (
    MlflowHooks(),
    ProgressHooks(),
    UnstoredHooks(),
    InterruptHooks(),
    EnvironmentHooks(),
    VersionHooks(),
    BesideHooks(),
    PreflightHooks(),
)
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)

CONFIG_LOADER_CLASS = WorldwiseConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    "config_patterns": {"mlflow": ["mlflow*"]},
    "merge_strategy": {"parameters": "soft", "mlflow": "soft", "globals": "soft"},
}
