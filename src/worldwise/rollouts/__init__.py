"""Live episodes x engine x world: batched play, plans, time limits, scripted yardsticks."""
