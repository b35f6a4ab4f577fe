"""Task ids that look like variants of one task, such as q1-a and q1-b: they share a stem and differ in a number or a suffix.

Variants of one task succeed and fail together, so they are no independent tasks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_FORMS = tuple(
    re.compile(form)
    for form in (
        r"(.*\d)[A-Za-z]",  # 12a
        r"(.*[^-_.:/#@ ])[-_.:/#@ ]+[^-_.:/#@ ]+",  # q1-a, q1_paraphrase, 12/3
        r"(.*[A-Za-z])\d+",  # capital2
        r"([^-_.:/#@]+)[-_.:/#@].*",  # q1-very-polite
    )
)
MOST_VARIANTS = 25
"""Mean size above which a group of ids is a category of tasks and not a family."""
LEAST_SHARE = 0.1
"""Share of the ids that belong to families if the ids suggest any."""


def id_stems(ids: Iterable[str]) -> dict[str, str]:
    """Return the stem of each id, or {} if the ids suggest no families. An id without relatives is its own stem.

    ids: of the tasks of one gym. The first form of an id that groups them into at least two families is used.
    """
    different = sorted(set(ids))
    for form in _FORMS:
        stems = {id_: match[1] if (match := form.fullmatch(id_)) else id_ for id_ in different}
        sizes = [size for size in Counter(stems.values()).values() if size > 1]
        members = sum(sizes)
        if len(sizes) > 1 and members >= LEAST_SHARE * len(different) and members <= MOST_VARIANTS * len(sizes):
            return stems
    return {}


def families_text(ids_by_gym: Mapping[str, Iterable[str]]) -> str:
    """Describe the families that task ids suggest, or return an empty string."""
    families: dict[tuple[str, str], list[str]] = {}
    for gym, ids in ids_by_gym.items():
        for id_, stem in id_stems(ids).items():
            families.setdefault((gym, stem), []).append(id_)
    several = [members for members in families.values() if len(members) > 1]
    if not several:
        return ""
    tasks = sum(map(len, several))
    return (
        f"{tasks:,} tasks have ids that suggest {len(several):,} families, such as {several[0][0]} and {several[0][1]}"
    )
