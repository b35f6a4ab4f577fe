"""Claims of the papers, each as a small experiment that was written down before it was run."""

from curricula.claims.claim import CHECKS, Arm, Claim, claim_names, load_arm, load_claim

__all__ = ["CHECKS", "Arm", "Claim", "claim_names", "load_arm", "load_claim"]
