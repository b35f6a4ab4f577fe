"""The 40 levels, in the order of AgentGym's item ids: ``babyai_N`` is level N mod 40 under seed N div 40.

A family is what the goal of a level is about; AgentGym-RL's table 4 has six of them as its subsets.
"""

from __future__ import annotations

FAMILIES: dict[str, tuple[str, ...]] = {
    "goto": (
        "GoToRedBallGrey",
        "GoToRedBall",
        "GoToRedBallNoDists",
        "GoToObjS6",
        "GoToLocalS8N7",
        "GoToObjMazeS7",
        "GoToImpUnlock",
        "GoToSeqS5R2",
        "GoToRedBlueBall",
        "GoToDoor",
        "GoToObjDoor",
    ),
    "open": ("Open", "OpenRedDoor", "OpenDoorLoc", "OpenRedBlueDoorsDebug", "OpenDoorsOrderN4Debug"),
    "pickup": ("Pickup", "UnblockPickup", "PickupLoc", "PickupDistDebug", "PickupAbove"),
    "putnext": ("PutNextLocalS6N4", "PutNextS7N4Carrying"),
    "unlock": ("Unlock", "UnlockLocalDist", "KeyInBox", "UnlockPickupDist", "BlockedUnlockPickup", "UnlockToUnlock"),
    "aod": ("ActionObjDoor",),
    "find": ("FindObjS7",),
    "corridor": ("KeyCorridorS6R3",),
    "room": ("OneRoomS20",),
    "move": ("MoveTwoAcrossS8N9",),
    "synth": ("SynthS5R2",),
    "synthloc": ("SynthLoc",),
    "synthseq": ("SynthSeq",),
    "boss": ("MiniBossLevel", "BossLevel", "BossLevelNoUnlock"),
}
LEVELS: tuple[str, ...] = tuple(level for levels in FAMILIES.values() for level in levels)
FAMILY: dict[str, str] = {level: family for family, levels in FAMILIES.items() for level in levels}


def environment_id(level: str) -> str:
    """The level's name in minigrid's registry; one of them has a version of its own."""
    return f"BabyAI-{level}-v{1 if level == 'GoToObjS6' else 0}"
