"""WishGym in English sentences (`WishConfig.wording`)."""

from __future__ import annotations

from userrl_core.gyms.wording import Act

ACTS = {
    "opening": Act(
        (
            "Hi, I need an outfit: {garments}. Can you help me?",
            "Hello! I am looking for {garments}.",
            "I have a party on Friday and need {garments}.",
            "Could you help me find {garments}?",
            "I want to buy an outfit with {garments}.",
            "My old clothes are worn out. I need {garments}.",
            "Good morning, I would like {garments}, please.",
            "Please help me choose {garments}.",
        ),
        (
            "Hey there. Today I am shopping for {garments}.",
            "I am going on a trip and still lack {garments}.",
            "Can you suggest an outfit? It should have {garments}.",
            "A friend sent me to you: I am after {garments}.",
        ),
    ),
    "colour": Act(
        (
            "I would like the {garment} in {colour}.",
            "{colour}, please.",
            "In {colour}, I think.",
            "The {garment} should be {colour}.",
            "I have {colour} in mind for the {garment}.",
            "Oh, {colour} for sure.",
            "My favourite for that is {colour}.",
            "Let us say {colour}.",
        ),
        (
            "I was hoping for {colour}.",
            "For the {garment}? Make it {colour}.",
            "I can only picture {colour} there.",
            "{colour} would go well with it.",
        ),
    ),
    "hesitates": Act(
        (
            "Hm, let me think about that.",
            "I am not sure yet.",
            "That is a hard one.",
            "Give me a moment.",
            "Well, it depends.",
            "Something nice, you know.",
            "I have not quite decided.",
            "Ask me again, I was somewhere else.",
        ),
        (
            "Oh, I cannot say right away.",
            "Sorry, I got distracted. What was it?",
            "Let me picture it first.",
            "You want to know everything, do you?",
        ),
    ),
    "anything": Act(
        (
            "I do not need that.",
            "That is no part of the outfit.",
            "Anything will do there.",
            "No, I did not ask for that.",
            "I have that already.",
            "Never mind that one.",
            "I have no wish there.",
            "That does not matter to me.",
        ),
        (
            "I have plenty of those at home.",
            "Skip that, please.",
            "It was not on my list.",
            "I really do not care about that.",
        ),
    ),
    "shown": Act(
        (
            "These fit so far: {options}.",
            "The shop has {options}.",
            "Found: {options}.",
            "Still possible: {options}.",
            "You can choose from {options}.",
            "The outfits left are {options}.",
            "What agrees with it: {options}.",
            "On the rack: {options}.",
        ),
        (
            "The catalogue lists {options}.",
            "In stock today: {options}.",
            "Remaining: {options}.",
            "Matches: {options}.",
        ),
    ),
    "unread": Act(
        (
            "I did not understand. Name one thing.",
            "What do you mean? One thing at a time.",
            "Sorry, which one?",
            "I cannot follow you. Which one is it?",
            "Please name exactly one.",
            "Could you say that again with one name?",
            "That was not clear to me.",
            "I do not know what you mean.",
        ),
        (
            "Pardon? Tell me just one.",
            "You lost me there.",
            "Which of them are you talking about?",
            "That made no sense to me.",
        ),
    ),
    "done": Act(
        (
            "Thank you, goodbye.",
            "I will take it.",
            "Thanks for your help.",
            "All right, pack it up.",
            "Good, that is all.",
            "Fine, thanks.",
            "We are done then.",
            "Thank you, have a nice day.",
        ),
        ("Great, see you.", "That settles it.", "Okay, bye.", "Thanks, that was quick."),
    ),
    "ask": Act(
        (
            "What colour should the {garment} be?",
            "Which colour for the {garment}?",
            "And the {garment}?",
            "In which colour do you want the {garment}?",
            "What about the {garment}?",
            "Do you have a colour in mind for the {garment}?",
            "How should the {garment} look?",
            "Tell me the colour of the {garment}.",
        ),
        (
            "Which shade would suit the {garment}?",
            "May I ask about the {garment}?",
            "The {garment}: what colour?",
            "What would you like for the {garment}?",
        ),
    ),
}
"""The wordings of the user, of search results and of the scripted demonstrator."""
