"""What a check of a claim found, and the words for it."""

from dataclasses import dataclass

AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "undecided"
NOT_TESTABLE, NOT_RUN = "not testable here", "not run yet"
VERDICTS = (AGREES, DIFFERS, UNDECIDED, NOT_TESTABLE, NOT_RUN)


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        ours: our value with its interval and n, or what was computed.
        verdict: one of ``VERDICTS``.
        reason: how it follows from the rule.
        paper: the paper's value, where the check knows it.
    """

    ours: str
    verdict: str
    reason: str
    paper: str = ""


MISSING = Finding("—", NOT_RUN, "")
