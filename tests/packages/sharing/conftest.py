"""The home of the checkpoints' tests, and their one thread."""

from tests.userrl_core.training.checkpoints.conftest import home, made_home
from userrl_core.training.local.threads import fix_threads

fix_threads(1)

__all__ = ["home", "made_home"]
