"""Prompts, chat template, history and action parsing: what a model reads, and what its answers mean."""
