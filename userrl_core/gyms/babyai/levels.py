"""The 40 levels, in the order of AgentGym's item ids: ``babyai_N`` is level N mod 40 under seed N div 40.

A family groups levels by their kind of goal. AgentGym-RL's table 4 uses six families as its subsets.
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


VERSIONS: dict[str, int] = {"GoToObjS6": 2}
"""The current version of a level's world. Every other level has one world, and its tasks name no version."""


def environment_of(level: str, version: int = 1) -> tuple[str, dict[str, int]]:
    """Return the level's name in minigrid's registry and the options that make the world of a task.

    On AgentGym's server GoToObjS6 has a room of 4 and 16 moves, as registered by minigrid 2.3.1. Version 1, which our
    tasks used first, is minigrid's room of 6 with 36 moves. Stored runs with version 1 replay unchanged.
    """
    if level != "GoToObjS6":
        return f"BabyAI-{level}-v0", {}
    return "BabyAI-GoToObjS6-v1", {"room_size": 4} if version == 2 else {}
