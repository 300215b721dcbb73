"""The record of play, its storage and checks, and what is derived from it."""
