"""The one error of this layer."""


class AgentError(ValueError):
    """An agent cannot be built or asked as configured. The message names value, range and fix."""
