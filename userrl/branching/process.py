"""The process of `branch_apart`. ``python -m userrl.branching.process`` reads a request and writes an answer, both JSON."""

from __future__ import annotations

import sys

from userrl.machine.piped import answering


def main() -> None:
    """Answer the request on stdin."""
    from userrl.branching.apart import BranchAnswer
    from userrl.branching.branch import BranchRequest, branches
    from userrl_core.errors import UserRLError

    with answering() as answer:
        try:
            answer(BranchAnswer(ways=branches(BranchRequest.model_validate_json(sys.stdin.readline())).ways))
        except UserRLError as error:
            answer(BranchAnswer(refused=error.told))


if __name__ == "__main__":
    main()
