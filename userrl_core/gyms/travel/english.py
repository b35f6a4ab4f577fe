"""TravelGym's tiny tier in English sentences (`TravelConfig.wording`)."""

from __future__ import annotations

from userrl_core.gyms.wording import Act

WISHES = {"price": "a {value} price", "area": "a place near the {value}", "meal": "{value} dishes"}
"""A preference in words, by category."""

ACTS = {
    "opening": Act(
        (
            "Hi, I need a hotel. I care about the {first} and the {second}.",
            "Please book a hotel for me. The {first} and the {second} matter.",
            "I am looking for a hotel. Please consider the {first} and the {second}.",
            "Could you find me a hotel with the right {first} and {second}?",
            "Hello! I want to stay somewhere nice. Two things count: {first} and {second}.",
            "We travel next week and need a hotel. Think of the {first} and the {second}.",
            "Can you suggest a hotel? The {first} and the {second} should suit me.",
            "I need a room for two nights. What counts is the {first} and the {second}.",
        ),
        (
            "Hey there. Help me choose a hotel by {first} and {second}.",
            "My sister is getting married and I need a hotel. The {first} and the {second} decide.",
            "A hotel, please. I am picky about the {first} and the {second}.",
            "Where could I stay? To me it is all about {first} and {second}.",
        ),
    ),
    "told": Act(
        (
            "I would like {wish}.",
            "{wish}, please.",
            "Best would be {wish}.",
            "I have {wish} in mind.",
            "Let us say {wish}.",
            "Oh, {wish} for sure.",
            "For me it has to be {wish}.",
            "I always look for {wish}.",
        ),
        (
            "I was hoping for {wish}.",
            "Make it {wish}.",
            "I can only think of {wish}.",
            "{wish} would suit me well.",
        ),
    ),
    "anything": Act(
        (
            "I do not mind.",
            "Anything will do there.",
            "That does not matter to me.",
            "I have no wish there.",
            "You decide that.",
            "Never mind that.",
            "It is all the same to me.",
            "I leave that to you.",
        ),
        (
            "Skip that, please.",
            "I really do not care about that.",
            "Whatever you like.",
            "That was not on my list.",
        ),
    ),
    "unread": Act(
        (
            "I did not understand. Ask about one thing.",
            "What do you mean? One thing at a time.",
            "Sorry, what was the question?",
            "I cannot follow you.",
            "Please ask about exactly one thing.",
            "Could you say that again in other words?",
            "That was not clear to me.",
            "I do not know what you mean.",
        ),
        (
            "Pardon? Ask me just one thing.",
            "You lost me there.",
            "What are you talking about?",
            "That made no sense to me.",
        ),
    ),
    "found": Act(
        (
            "Found: {options}.",
            "These hotels fit: {options}.",
            "I found {options}.",
            "You can choose from {options}.",
            "Still free: {options}.",
            "The search gives {options}.",
            "Possible: {options}.",
            "Hotels for that: {options}.",
        ),
        (
            "The catalogue lists {options}.",
            "Matches: {options}.",
            "Remaining: {options}.",
            "On offer: {options}.",
        ),
    ),
    "none": Act(
        (
            "Nothing was found.",
            "No hotel fits that.",
            "There is no result.",
            "The search gives nothing.",
            "No match.",
            "That was not found.",
            "The list is empty.",
            "There is nothing like that.",
        ),
        ("No entry.", "Nothing matches.", "Zero results.", "The catalogue has none."),
    ),
    "right": Act(
        (
            "Perfect, that is the one.",
            "Great, I will take it.",
            "That is just right, thanks.",
            "Yes, book it.",
            "Wonderful, thank you.",
            "This one is ideal.",
            "That is what I wanted.",
            "Good choice, thanks.",
        ),
        ("Exactly that one.", "Lovely, please reserve it.", "You got it.", "That suits me perfectly."),
    ),
    "wrong": Act(
        (
            "No, that is not right.",
            "That does not suit me.",
            "I will look elsewhere.",
            "That is not what I wanted.",
            "No, thank you.",
            "This is the wrong one.",
            "Sorry, not that one.",
            "That will not do.",
        ),
        ("I had something else in mind.", "Not for me.", "That misses the point.", "I would rather not."),
    ),
    "which": Act(
        (
            "Which one of them?",
            "I can only take one. Which?",
            "Please name one hotel.",
            "One of these, or what do you mean?",
            "Make up your mind, please.",
            "That is more than one.",
            "Just one, please.",
            "I need a single hotel.",
        ),
        ("Choose one for me.", "Not several. Which one?", "I sleep in one hotel.", "Tell me a single one."),
    ),
    "again": Act(
        (
            "You have told me that already.",
            "We had that before.",
            "That was settled before.",
            "Once is enough.",
            "You said so already.",
            "I know that by now.",
            "That is nothing new.",
            "We need not go over that again.",
        ),
        ("I heard that before.", "That is already clear.", "We have been there.", "That changes nothing."),
    ),
    "left": Act(
        (
            "Goodbye.",
            "I have to go.",
            "This takes too long.",
            "Let us stop here.",
            "I give up.",
            "That is enough for today.",
            "I will try another agency.",
            "Sorry, I am out of time.",
        ),
        ("Bye now.", "I am leaving.", "Enough of that.", "I cannot wait any longer."),
    ),
    "ask": Act(
        (
            "Which {category} would you like?",
            "What about the {category}?",
            "And the {category}?",
            "Do you have a wish for the {category}?",
            "Tell me about the {category}.",
            "What should the {category} be?",
            "Which {category} do you prefer?",
            "What should I know about the {category}?",
        ),
        (
            "Any thoughts on the {category}?",
            "May I ask about the {category}?",
            "The {category}: what would suit you?",
            "What do you have in mind for the {category}?",
        ),
    ),
}
"""The wordings of the user, of the database and of the scripted demonstrator."""
