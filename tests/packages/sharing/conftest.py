"""The home of the checkpoints' tests."""

from tests.userrl_core.training.checkpoints.conftest import home, made_home

__all__ = ["home", "made_home"]
