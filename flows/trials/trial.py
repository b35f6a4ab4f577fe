"""One trial of a sweep as a process of its own: ``python -m flows.trials.trial PARAMETERS-AS-JSON`` calls the train flow."""

from __future__ import annotations

import json
import sys

from flows.train import train
from userrl_core.errors import UserRLError

if __name__ == "__main__":
    try:
        train(**json.loads(sys.argv[1]))
    except UserRLError as error:
        sys.exit(f"error: {error}")
