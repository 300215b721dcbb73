"""What is wrong with the input of a run, said before anything expensive begins."""

from __future__ import annotations


class InputError(ValueError):
    """A parameter, a folder or a stored result that a run needs is not as it must be.

    The message names what it is, its value, what is allowed and how to put it right; several findings
    stand one to a line.
    """

    def __init__(self, *findings: str) -> None:
        self.findings = findings
        super().__init__("\n".join(f"- {finding}" for finding in findings) if len(findings) > 1 else findings[0])
