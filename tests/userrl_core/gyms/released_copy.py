"""A small copy in the layout of the released repositories, with texts of our own, for tests of reading and mapping."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "userrl/gyms/IntentionGym/intentiongym/env/prompts.py": '''
RESPONSE_GENERATION_PROMPT = """Task {task} of {category}. Asked: {question}. Before: {conversation_history}. json"""
EVALUATION_PROMPT = """Task {task} of {category}. Open:
{details_list}Asked: {question}. Before: {conversation_history}. json {{"covered_detail_indices": []}}"""


def build_response_generation_prompt(question, task, conversation_history):
    context = ""
    if conversation_history:
        context = "Earlier:\\n"
        for i, (prev_q, prev_r) in enumerate(conversation_history[-3:], 1):
            context += f"They: {prev_q}\\nMe: {prev_r}\\n"
    return RESPONSE_GENERATION_PROMPT.format(
        task=task, category="", question=question, conversation_history=context if context.strip() else "nothing yet"
    )


def build_evaluation_prompt(question, task, conversation_history, remaining_missing_details):
    context = ""
    if conversation_history:
        context = "Earlier:\\n"
        for i, (prev_q, prev_r) in enumerate(conversation_history[-3:], 1):
            context += f"{i}) {prev_q} -> {prev_r}\\n"
    details_list = ""
    for i, detail in enumerate(remaining_missing_details):
        details_list += f"{i}: [{importance_label}] {detail['description']}\\n"
        if "inquiry" in detail:
            details_list += f"   such as {detail['inquiry']}\\n"
        details_list += "\\n"
    return EVALUATION_PROMPT.format(
        task=task,
        details_list=details_list if details_list.strip() else "nothing is open",
        conversation_history=context if context.strip() else "nothing",
    )


async def generate_response_async(question):
    return [{"role": "system", "content": "You reply."}, {"role": "user", "content": prompt}]


async def evaluate_question_coverage_async(question):
    return [{"role": "system", "content": "You judge coverage."}, {"role": "user", "content": prompt}]


raise SystemExit("the copy was executed")
''',
    "userrl/gyms/PersuadeGym/persuadegym/env/prompts.py": '''
PERSUADEE_RESPONSE_SYS = "You hold a view."
PERSUADEE_RESPONSE_USER = """View {statement} since {initial_argument}; stance {current_stance}. {conversation_history}
Now: {latest_argument} json {{"response": "", "stance": ""}}"""


def build_response_prompt(action_str, statement_data, conversation_history, current_stance):
    history_text = ""
    if conversation_history:
        for i, (persuader_arg, env_response) in enumerate(conversation_history, 1):
            history_text += f"{i}. {persuader_arg} / {env_response}\\n"
    else:
        history_text = "It begins."
''',
    "userrl/gyms/TelepathyGym/telepathygym/env/prompts.py": """
ACTION_SYS = "You answer about a thing."
ACTION_USER = "Thing <target_entity>. Asked <user_question>. json"
ANSWER_SYS = "You judge a guess."
ANSWER_USER = "Thing <target_entity>. Guessed <user_guess>. json"
""",
    "userrl/gyms/TurtleGym/turtlegym/env/prompts.py": """
ACTION_SYS = "You answer about a story."
ACTION_USER = "Seen <surface>. Hidden <bottom>. Asked <query>. json"
ANSWER_SYS = "You grade a story."
ANSWER_USER = "Seen <surface>. Hidden <bottom>. Told <user>. Points <protocol>. json"


def parse_llm_response(response_text, is_answer=False, story=None):
    feedback = ""
    for statement in story:
        feedback += f"{statement} is in it\\n"
    feedback = feedback.strip()
    if feedback == "":
        feedback = "None of it."
    else:
        feedback = "In it:\\n" + feedback + "\\nGo on."
""",
    "userrl/gyms/SearchGym/searchgym/env/prompts.py": """
ANSWER_SYS = "You judge an answer."
ANSWER_USER = "Asked <question>. Told <model_answer>. Right <correct_answer>. json"
""",
    "userrl/gyms/SearchGym/searchgym/env/search_env.py": """
class SearchEnv:
    async def _handle_answer_action_async(self, action_str, model_config):
        feedback, judgment = await judge()
        if judgment:
            feedback = f"Right: {answer}."
        else:
            feedback = f"Wrong: {answer}."
""",
    "userrl/gyms/TravelGym/travelgym/env/utils.py": """
JUDGE_SEARCH_SYSTEM = "You judge a search."
JUDGE_SEARCH_USER = "Search {agent_request}; right {ground_truth_arguments}. json"
JUDGE_PROMPT_SYSTEM = "You judge a message."
JUDGE_PROMPT_USER = "Trip {scenario}\\n{conversation_history}\\nMessage {latest_utterance}\\nWishes {preferences_list}\\njson"
RESPONSE_PREFERENCE_SYSTEM = "You tell a wish."
RESPONSE_PREFERENCE_USER = "{preference}\\n{conversation_history}\\n{latest_utterance}\\njson"
RESPONSE_ELICIT_SYSTEM = "You bring up a wish."
RESPONSE_ELICIT_USER = "{preference}\\n{conversation_history}\\n{latest_utterance}\\njson"
RESPONSE_NATURAL_SYSTEM = "You chat."
RESPONSE_NATURAL_USER = "{conversation_history}\\n{latest_utterance}\\njson"


def build_history_into_prompt(conversation_history, with_note=False):
    if not conversation_history:
        return "Silence."
    history_str = ""
    for entry in conversation_history:
        if role == "agent":
            history_str += f"A {content}\\n"
            if with_note and note:
                history_str += f"(note {note})\\n"
        elif role == "user":
            history_str += f"U {content}\\n"
        elif role == "database":
            history_str += f"D {content}\\n"
        else:
            history_str += f"{role} {content}\\n"
        history_str += "\\n"
    return history_str.strip()


OPTION_SCHEMAS = {
    "flight": "Flights. ", "hotel": "Hotels.", "restaurant": "Restaurants.", "apartment": "Flats.", "rental_car": "Cars.",
}
""",
    "userrl/gyms/TravelGym/travelgym/env/prompt_async.py": """
async def async_generate_judge_search(agent_request, task):
    arg_string = ""
    for dimension, argument in arguments.items():
        arg_string += f"{dimension} = {json.dumps(argument, indent=4)};"


async def async_generate_judge_response(agent_action, task):
    preferences_str = ""
    for preference in available_preferences:
        preferences_str += f"{preference['id']} of {preference['aspect']} is {preference['preference']}\\n"


async def async_evaluate_action(action):
    feedback = f"Found.\\n\\n{schema}\\n\\nOptions of {alignment_aspect}:\\n"
    conversation_history.append({"role": "database", "content": feedback.split("\\n")[0] + " (cut)"})
    feedback = f"{alignment_aspect} was found before."
    feedback = "That search is wrong."
    feedback = "That search is about nothing."
    feedback = "The search is down."
    note = "It is other."
    note = f"It asks for {preference_id}."
    note = f"It asks for nothing held."
    note = "It is vague."
    note = "Judging failed."
    preference_str = f"{preference_id} {current_preference['aspect']} {current_preference['implicit_elicitation']}".strip()
    preference_str = f"{preference_id} {random_preference['aspect']} {random_preference['implicit_elicitation']}".strip()
    conversation_history.append({"role": "agent", "content": action, "note": "It was brought up."})
    response = "Nothing there."
    response = "Too vague."
    note = "Replying failed."
    conversation_history.append({"role": "user", "content": "Again, please."})
    feedback = f"{id} is no id."
    feedback = f"One with {id_initial} was chosen."
    feedback = f"The best."
    feedback = f"The best and wrong ones."
    feedback = f"A right one."
    feedback = f"A right one and wrong ones."
    feedback = f"None is right."
    feedback = feedback.strip() + f" It is final."
    feedback = feedback.strip() + f" It is noted."
""",
    "tau-bench/tau_bench/envs/user.py": '''
class LLMUserSimulationEnv:
    def build_system_prompt(self, instruction):
        instruction_display = ("\\n\\nYou want: " + instruction + "\\n") if instruction is not None else ""
        return f"""You are a customer.{instruction_display}
End with ###STOP###."""

    def reset(self, instruction=None):
        self.messages = [
            {"role": "system", "content": self.build_system_prompt(instruction=instruction)},
            {"role": "user", "content": "What is it?"},
        ]


class ReactUserSimulationEnv(LLMUserSimulationEnv):
    def build_system_prompt(self, instruction):
        return f"""You are a customer who thinks.{instruction_display}
End with ###STOP###."""
''',
    "tarl/judge.md": "You judge turns. Give score_0 to score_n.\n",
}
"""The files of the copy. Their structure is the released files', their texts are ours."""


def write_copy(root: Path) -> Path:
    """Write the copy into a folder, and return the folder."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
