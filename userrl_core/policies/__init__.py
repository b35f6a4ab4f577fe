"""Who acts: scripted demonstrators, OpenAI-compatible servers, the local model, a person."""

from userrl_core.policies.base import BatchPolicy, Policy, Session
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply

__all__ = ["BatchPolicy", "Policy", "PolicyReply", "ScriptedPolicy", "Session"]
