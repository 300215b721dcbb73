"""Stored results that are whole: knows Kedro's folders, nothing of reinforcement learning."""
