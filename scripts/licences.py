"""docs/reference/licences.md: the licence of each pinned package, from the metadata of the installed packages.

``python scripts/licences.py`` writes the page. Run it where everything of constraints.txt is installed (after `make test`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

PAGE = Path("docs/reference/licences.md")
COPYLEFT = re.compile(r"\b[AL]?GPL|General Public|\bMPL|Mozilla|\bEPL|Eclipse", re.IGNORECASE)
SHORT = {
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "Apache": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Words of classifiers and free texts, with the licence they mean."""
HEAD = """# Licences of the installed packages

This project is Apache-2.0 ([LICENSE](../LICENSE)). It does not ship the packages below. pip installs them, unchanged, from their
authors. The table shows the licence that each installed package states (`python scripts/licences.py` writes this page). A slash
separates licences that its classifiers name. Some of these are alternatives.
"""


def main() -> None:
    """Write the page, and print the packages that are not installed."""
    pinned = [
        line.partition("==")[0]
        for line in Path("constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    by_licence, missing = defaultdict(list), []
    for name in sorted(set(pinned), key=str.lower):
        try:
            by_licence[licence(name)].append(name)
        except PackageNotFoundError:
            missing.append(name)
    copyleft = {text: names for text, names in by_licence.items() if COPYLEFT.search(text)}
    rows = [
        f"| {text} | {', '.join(names)} |" for text, names in sorted(by_licence.items(), key=lambda item: -len(item[1]))
    ]
    special = [f"- {', '.join(names)}: {text}" for text, names in sorted(copyleft.items())]
    PAGE.write_text(
        "\n".join(
            [
                HEAD,
                "## With conditions on passing it on",
                "These licences set conditions for anyone who passes the packages on, for example in an image, changed or not.",
                "Used as libraries, they set no condition for this project's own code. `psycopg` (LGPL) comes with the extra",
                "`postgres` alone.",
                "",
                *special,
                "",
                "## All",
                "| licence | packages |",
                "| --- | --- |",
                *rows,
                *([f"| not installed where this page was made | {', '.join(missing)} |"] if missing else []),
                "",
            ]
        )
    )
    print(f"{PAGE}: {sum(map(len, by_licence.values()))} packages, {len(special)} licences with conditions")


def licence(name: str) -> str:
    """Return a package's licence: the expression, else its classifiers, else the first line of the free text."""
    package_metadata = metadata(name)
    expression = package_metadata.get("License-Expression")
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in package_metadata.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    licences = [text for text in classifiers if text != "OSI Approved"]
    free = next((line.strip() for line in (package_metadata.get("License") or "").splitlines() if line.strip()), "")
    text = (
        expression
        or " / ".join(SHORT.get(classifier, classifier) for classifier in licences)
        or SHORT.get(free, free)
        or "not said"
    )
    return text if len(text) <= 120 else f"{text[:117]}..."


if __name__ == "__main__":
    main()
