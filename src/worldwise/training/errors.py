"""What the learner refuses."""


class LearnerError(RuntimeError):
    """Bad input, a sampler that disagrees with the learner, or numbers that are not finite."""
