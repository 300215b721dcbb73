"""Kedro hooks of this project, one concern each. MLflow's is in `worldwise.tracking`."""
