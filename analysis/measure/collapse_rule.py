"""The rule for a collapse, in one place for Python and SQL (`warehouse/views` fills these numbers into its files).

A run collapsed if its score at the end of training is far below its best score. Both are measured at the final
training horizon of the run. A conversation that takes more turns than that horizon counts as 0. A fall only beyond
the training horizon is a loss of ability that training no longer visits. It is reported separately, as forgetting.
"""

MIN_FALL = 0.1
"""Smallest fall of the mean score that counts."""
FALL_ERRORS = 3.0
"""Standard errors of the paired difference over tasks that a fall must exceed."""


def min_fall(error: float, smallest: float = MIN_FALL) -> float:
    """Return the fall of the mean that must be exceeded. error: standard error of the paired difference."""
    return max(smallest, FALL_ERRORS * error)


def fill(sql: str) -> str:
    """Return SQL with the rule's numbers in place of ``{MIN_FALL}`` and ``{FALL_ERRORS}``."""
    return sql.replace("{MIN_FALL}", repr(MIN_FALL)).replace("{FALL_ERRORS}", repr(FALL_ERRORS))
