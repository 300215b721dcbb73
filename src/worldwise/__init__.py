"""Worldwise: teach a language agent how its world answers, then how to act in it."""

__version__ = "0.1.0"
