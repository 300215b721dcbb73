"""Kedro datasets of this project: folders that hold a model or episodes, stored whole or not at all."""
