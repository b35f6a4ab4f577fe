"""The errors this product raises on purpose: one class per boundary (gym, user, judge, policy, log ...).

A failed rollout is data, not a crash: the episode catches these errors once, records a null reward with the reason, and
the run continues. Each class also subclasses the built-in exception that a caller would expect. A message is one sentence
that tells the reader what to do next.
"""

from __future__ import annotations


class UserRLError(Exception):
    """Base class of every error this product raises on purpose."""


class ConfigError(UserRLError, ValueError):
    """A recipe, profile, parameter or option cannot be used as given."""


class TaskError(UserRLError, ValueError):
    """A task file or task row cannot be read; the message names file, index and field."""


class MissingFileError(TaskError):
    """A file or folder of published tasks is not there."""


class GymError(UserRLError, RuntimeError):
    """A gym was misused or is broken: a step after the end, a second reset, a bug in a rule."""


class UserError(UserRLError, RuntimeError):
    """The simulated user gave no usable reply after all retries: the turn's reward is null, never zero."""


class JudgeError(UserRLError, RuntimeError):
    """The judge gave no reply that fits its schema after all retries: the turn's reward is null, never zero."""


class PolicyError(UserRLError, RuntimeError):
    """The policy's model server gave no reply after all retries: the trajectory is not admitted."""


class LogError(UserRLError, OSError):
    """The turn log cannot write (disk full, folder deleted): training stops, because turns would be lost."""


class CheckpointError(UserRLError, FileNotFoundError):
    """A checkpoint is missing, incomplete or does not match its hash."""


class TrainingError(UserRLError, RuntimeError):
    """A trainer ended without a result (no optimiser step, no checkpoint, a dead worker)."""


class Refused(UserRLError, PermissionError):
    """The request is not allowed (an SQL statement other than SELECT, a file outside the warehouse)."""
