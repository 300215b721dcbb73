"""Following a run: listeners of a node's numbers, a progress line, the MLflow hook. Knows no RL."""
