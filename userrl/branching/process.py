"""The process of `branch_apart`. ``python -m userrl.branching.process`` reads a request and writes an answer, both JSON."""

from __future__ import annotations

import contextlib
import sys

from userrl_core.processes import die_with_parent


def main() -> None:
    """Answer the request on stdin. Prints of libraries go to stderr, so that stdout holds only the answer."""
    from userrl.branching.apart import BranchAnswer
    from userrl.branching.branch import BranchRequest, branches
    from userrl_core.errors import UserRLError

    die_with_parent()
    request = BranchRequest.model_validate_json(sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = BranchAnswer(ways=branches(request).ways)
        except UserRLError as error:
            answer = BranchAnswer(refused=error.told)
    print(answer.model_dump_json())


if __name__ == "__main__":
    main()
