"""Who acts: scripted demonstrators, OpenAI-compatible servers, the local model, a person."""

from userrl_core.policies.base import BatchPolicy, Policy, PolicyReply, Session
from userrl_core.policies.scripted import ScriptedPolicy

__all__ = ["BatchPolicy", "Policy", "PolicyReply", "ScriptedPolicy", "Session"]
