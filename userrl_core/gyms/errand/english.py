"""ErrandGym in English sentences (`ErrandConfig.wording`)."""

from __future__ import annotations

from userrl_core.gyms.wording import Act

ACTS = {
    "opening": Act(
        (
            "Hi, I would like to have {thing}.",
            "Could you make me {thing}?",
            "I need {thing} for my house.",
            "Please get me {thing}.",
            "My neighbour has {thing}, and I want one too.",
            "Hello! What I need today is {thing}.",
            "Can you help me? I want {thing}.",
            "I have been looking for {thing} everywhere.",
        ),
        (
            "Hey, my wish is {thing}.",
            "I would love to own {thing}.",
            "For my birthday I want {thing}.",
            "There is one thing I lack: {thing}.",
        ),
    ),
    "part": Act(
        (
            "You make it from {part}.",
            "For that you need {part}.",
            "It is made of {part}.",
            "First get {part}.",
            "That takes {part}.",
            "Without {part} it cannot be made.",
            "It starts with {part}.",
            "People build it out of {part}.",
        ),
        (
            "Bring {part}, then it can be done.",
            "Its only part is {part}.",
            "My aunt always used {part} for it.",
            "You will want {part} for that.",
        ),
    ),
    "raw": Act(
        (
            "That is raw, just fetch it.",
            "You can simply fetch it: it is raw.",
            "Nothing is needed, it is raw.",
            "It is raw. Go and get it.",
            "Oh, that one is raw.",
            "It grows like that, raw.",
            "It is not made of anything, it is raw.",
            "That comes raw.",
        ),
        (
            "Raw, so you only have to pick it up.",
            "No parts there, all raw.",
            "It is found raw.",
            "You find it raw outside.",
        ),
    ),
    "no": Act(
        (
            "That does not work.",
            "No, not like that.",
            "That cannot be done now.",
            "Not yet.",
            "This leads nowhere.",
            "I do not follow you.",
            "Something else comes first.",
            "No, try another way.",
        ),
        ("Hardly.", "It fails.", "You cannot do that at this point.", "No luck there."),
    ),
    "ok": Act(
        (
            "Good, you have it.",
            "That worked.",
            "There it is.",
            "Well done, you hold it now.",
            "Yes, it is yours.",
            "Got it.",
            "Fine, that is ready.",
            "Here you go.",
        ),
        ("It is in your hands.", "Right, finished.", "That is taken care of.", "One step further."),
    ),
    "done": Act(
        (
            "Thank you, that is what I wanted.",
            "Wonderful, thanks.",
            "That is it, goodbye.",
            "Perfect, thank you.",
            "You made my day.",
            "Exactly right, thanks.",
            "Great, I am happy now.",
            "Thanks for the errand.",
        ),
        ("Lovely, see you.", "What a beauty, thanks.", "Just as I hoped.", "All settled, thank you."),
    ),
    "ask": Act(
        (
            "What is the {thing} made of?",
            "What do I need for the {thing}?",
            "How do you make the {thing}?",
            "And the {thing}?",
            "Where does the {thing} come from?",
            "What goes into the {thing}?",
            "Can you tell me about the {thing}?",
            "What does the {thing} take?",
        ),
        (
            "How does one get the {thing}?",
            "What is behind the {thing}?",
            "The {thing}: of what?",
            "What comes before the {thing}?",
        ),
    ),
}
"""The wordings of the user, the gym's answers and the scripted demonstrator."""
