"""What credit and advantages mean, in sentences for the reader of a chart."""

SHAPING_MEANINGS: dict[str, str] = {
    "naive": "naive: a turn is credited with its own reward, and one without a reward with nothing",
    "equalized": "equalized: every turn gets 1; only the score tells trajectories apart",
    "r2g": "r2g: a turn is credited with its own reward and the later ones, discounted by gamma a turn",
    "em": "em: every turn has at least 0.5, also one without a reward; small rewards count nearly as much as large ones",
}
"""The credit of a turn under each of our shapings."""

FORM_MEANINGS: dict[str, str] = {
    "released": "the score's distance from the group's mean, in deviations, spread over an attempt's turns by their credit; an "
    "attempt without any credit has 0",
    "paper": "a turn's credit less the group's mean score, in deviations; it need not average 0 within a group: a turn without "
    "reward lies below 0 even in the best attempt",
    "centred": "a turn's credit less the group's mean credit, in deviations; it averages 0 over the group's tokens",
}
"""The advantage in each form. Under ``equalized`` every form gives the score's distance."""
