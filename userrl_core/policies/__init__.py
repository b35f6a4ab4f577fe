"""Policies: scripted demonstrators, served models, a person at the terminal (the local model is in `training.local`)."""

from userrl_core.policies.base import BatchPolicy, Policy, Session
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply

__all__ = ["BatchPolicy", "Policy", "PolicyReply", "ScriptedPolicy", "Session"]
