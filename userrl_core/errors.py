"""Boundary errors: what may go wrong around an episode, and who is to blame.

A bad rollout is data, not a crash. Each class names a boundary (gym, user, judge, policy, log ...); the episode catches
them once, records a null reward with the reason, and the run goes on. Each also subclasses the built-in a caller would
reach for. A message is one sentence for the person who must act.
"""

from __future__ import annotations


class UserRLError(Exception):
    """Base of every error this product raises on purpose."""


class ConfigError(UserRLError, ValueError):
    """A recipe, profile, parameter or option cannot be used as given."""


class TaskError(UserRLError, ValueError):
    """A task file or task row cannot be read; the message names file, index and field."""


class GymError(UserRLError, RuntimeError):
    """A gym was used wrongly or broke: stepping a finished episode, a second reset, a bug in a rule."""


class UserError(UserRLError, RuntimeError):
    """The simulated user gave no usable reply after all retries: the turn's reward is null, never zero."""


class JudgeError(UserRLError, RuntimeError):
    """A judgement could not be had or did not fit its schema after all retries: the reward is null, never zero."""


class PolicyError(UserRLError, RuntimeError):
    """The policy's model server gave no reply after all retries: the trajectory is not admitted."""


class LogError(UserRLError, OSError):
    """The turn log cannot write (disk full, folder gone): training must stop, since turns would be lost."""


class CheckpointError(UserRLError, FileNotFoundError):
    """A checkpoint is missing, incomplete or does not match its hash."""


class TrainingError(UserRLError, RuntimeError):
    """A trainer ended without doing its work (no step moved, no gradient, worker died)."""


class Refused(UserRLError, PermissionError):
    """Something that was asked for is not allowed (an SQL statement that is no SELECT, a file outside the warehouse)."""
