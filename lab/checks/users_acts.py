"""The training of the head that reads dialogue acts, and its figures on writers that it was not trained on.

    python -m lab.checks.users_acts              prints average precision and recall for each act, one writer left out at a time
    python -m lab.checks.users_acts --write      also trains on all writers and writes the head into the package

`data/users/words/train.jsonl` has a writer, a speaker, the words before, the text and its acts in each line. The writers are
language models with separate contexts. The encoder is the one of this home (`userrl model fetch all-minilm-l6-v2`), and
utterances of people are the ones of `people:chitchat`: they coach nobody and hand nobody over.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from userrl.audits.chitchat import chitchat
from userrl.machine.pretrained import encoder_path
from userrl_core.gyms import tasks
from userrl_core.gyms.tau.rule_user import FORGOTTEN, first_person
from userrl_core.judging.acts import ACTS, Act, Utterance
from userrl_core.training.local.acts import HEAD, features
from userrl_core.training.local.encoder import LAYERS, SentenceEncoder

TRAIN = Path(__file__).parents[2] / "data" / "users" / "words" / "train.jsonl"
INVERSE_PENALTY = 10.0
"""C of the logistic regression."""
SEED, PEOPLE, WISHES, SENTENCES = 0, 400, 120, 320
"""Seed, and numbers of replies of people, and of wishes and their sentences of our own customers among the utterances."""
NEVER_OF_PEOPLE: tuple[Act, ...] = ("coaches", "hands_over")
"""Acts that nobody does who just chats; of the others nothing is known."""
ASKED = (
    "How can I help you?",
    "Could you tell me more?",
    "Thank you. What would you like to change?",
    "Shall I go ahead?",
    "",
)
LEADS = ("", "", "Hi, ", "Hello! ", "Yes. ", "Also, ", "Thanks. ", "Please note: ", "OK, ")
"""Questions before a wish, and beginnings of it."""
FALSE: Mapping[Act, float] = {"confirms": 0.04, "refuses": 0.04, "coaches": 0.01, "hands_over": 0.01}
"""Share of the utterances without an act that may have it; .02 for the others. A rule that reads whether the user confirms asks
about one reply, a rule that reads whether it coaches about all of them.
"""


def utterances() -> tuple[list[str], list[Utterance], np.ndarray]:
    """Return the writer of each line, the utterances, and their acts [N, A], nan where nobody knows.

    What people and our own customers say is dealt out to the writers, so that a part of it is left out with each.
    """
    rows = [json.loads(line) for line in TRAIN.read_text(encoding="utf-8").splitlines()]
    acts_NA = np.array([[float(act in row[4].split()) for act in ACTS] for row in rows])
    people, wishes = of_people(), of_tasks()
    people_NA = np.where([act in NEVER_OF_PEOPLE for act in ACTS], 0.0, np.nan) * np.ones((len(people), 1))
    wishes_NA = np.where([act == "states" for act in ACTS], 1.0, 0.0) * np.ones((len(wishes), 1))
    return (
        [*(row[0] for row in rows), *islice(cycle("abcd"), len(people) + len(wishes))],
        [*(Utterance(row[1], row[2], row[3]) for row in rows), *people, *wishes],
        np.concatenate([acts_NA, people_NA, wishes_NA]),
    )


def of_people() -> list[Utterance]:
    """Return replies of people to people, one of each conversation."""
    rng = random.Random(SEED)
    conversations = rng.sample(chitchat(), PEOPLE)
    places = [(conversation, rng.randrange(1, len(conversation))) for conversation in conversations]
    return [Utterance("user", conversation[at - 1][1], conversation[at][1]) for conversation, at in places]


def of_tasks() -> list[Utterance]:
    """Return what customers of our own tasks say of their wish, whole and by the sentence: they state it, and do nothing else."""
    rng = random.Random(SEED)
    instructions = [
        task.payload["instruction"].removesuffix(FORGOTTEN).strip()
        for domain in ("outfitter", "bikes")
        for task in tasks("tau", "train", domain=domain)
    ]
    replies = [first_person(text) for text in rng.sample(instructions, WISHES)]
    sentences = [first_person(sentence) for text in instructions for sentence in re.split(r"(?<=[.!?])\s+", text)]
    for sentence in rng.sample(sorted(set(sentences)), SENTENCES):
        lead, wish = rng.choice(LEADS), rng.choice(("I want", "I want", "I need", "I'd like"))
        replies.append(f"{lead}{sentence.replace('I want', wish)}")
    return [Utterance("user", rng.choice(ASKED), reply) for reply in replies]


def fitted(inputs_NF: np.ndarray, has_act_N: np.ndarray) -> Any:
    """Return the logistic regression of one act."""
    from sklearn.linear_model import LogisticRegression

    known_N = ~np.isnan(has_act_N)
    return LogisticRegression(C=INVERSE_PENALTY, max_iter=1000).fit(inputs_NF[known_N], has_act_N[known_N])


def left_out(writers: list[str], inputs_NF: np.ndarray, acts_NA: np.ndarray) -> np.ndarray:
    """Return each act's probability, [N, A], by a head that was not trained on the line's writer."""
    probabilities_NA = np.zeros(acts_NA.shape)
    for writer in sorted(set(writers)):
        other_N = np.array([name != writer for name in writers])
        for act in range(len(ACTS)):
            model = fitted(inputs_NF[other_N], acts_NA[other_N, act])
            probabilities_NA[~other_N, act] = model.predict_proba(inputs_NF[~other_N])[:, 1]
    return probabilities_NA


def main() -> None:
    """Print the figures; with --write, write the head."""
    from sklearn.metrics import average_precision_score

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    folder = encoder_path()
    if folder is None:
        parser.error("The encoder is not in this home. Run 'userrl model fetch all-minilm-l6-v2'.")
    writers, texts, acts_NA = utterances()
    inputs_NF = features(SentenceEncoder(folder, max(LAYERS)), texts)
    probabilities_NA = left_out(writers, inputs_NF, acts_NA)
    known_NA = ~np.isnan(acts_NA)
    thresholds = []
    print("| act | utterances | average precision | recall | threshold |\n| --- | ---: | ---: | ---: | ---: |")
    for index, act in enumerate(ACTS):
        known_N = known_NA[:, index]
        has_act_N, probability_N = acts_NA[known_N, index] > 0, probabilities_NA[known_N, index]
        threshold = float(np.quantile(probability_N[~has_act_N], 1 - FALSE.get(act, 0.02)))
        thresholds.append(threshold)
        precision = average_precision_score(has_act_N, probability_N)
        recall = (probability_N[has_act_N] > threshold).mean()
        print(f"| {act} | {has_act_N.sum()} | {precision:.2f} | {recall:.2f} | {threshold:.2f} |")
    if arguments.write:
        models = [fitted(inputs_NF, acts_NA[:, act]) for act in range(len(ACTS))]
        save_file(
            {
                "weight": np.concatenate([model.coef_ for model in models]).astype(np.float16),
                "bias": np.concatenate([model.intercept_ for model in models]).astype(np.float16),
                "threshold": np.array(thresholds, dtype=np.float16),
            },
            HEAD,
        )
        print(f"{HEAD}: {HEAD.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
