"""The codes of our errors, each with its meaning and its remedy.

A code is ``area.what`` and never changes its meaning. Several places raise the same code when the reader would do the same
thing. ``docs/errors.md`` is generated from this table (``python scripts/errors.py --write``).
"""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """An error code in words, each one sentence."""

    meaning: str
    remedy: str


CODES: dict[str, Explained] = {
    code: Explained(meaning, remedy)
    for code, meaning, remedy in (
        (
            "alarm.stopped",
            "An alarm of the recipe stopped the run.",
            "Look at the metrics that the message names, then change the settings or the alarm's action.",
        ),
        ("alarm.unknown", "An alarm or its action does not exist.", "Use one of the names in the message."),
        ("argument.conflict", "Two arguments exclude each other.", "Omit one of them."),
        ("argument.malformed", "An argument has the wrong form.", "Write it in the form that the message shows."),
        ("argument.missing", "A command or function needs an argument that was not given.", "Give the argument."),
        (
            "argument.out_of_range",
            "A number is outside its range.",
            "Give a value in the range that the message names.",
        ),
        (
            "argument.unknown_value",
            "An argument has a value that is not one of its choices.",
            "Use one of the values in the message.",
        ),
        (
            "audit.too_few_scores",
            "An audit has fewer than two tasks with scores, or a continuation without a score.",
            "Give two tasks or more, and check that the gym and its user work.",
        ),
        (
            "branch.too_slow",
            "Playing on from a turn took longer than the page waits.",
            "Run the command in the message, which has no time limit.",
        ),
        ("budget.spent", "The run has used its budget of hours or money.", "Raise the budget and run again."),
        (
            "chats.invalid",
            "A file of conversations cannot be used as demonstrations.",
            "Correct the file and the line that the message names; docs/recipes.md describes the format.",
        ),
        (
            "checkpoint.bad_tokenizer",
            "The tokenizer or the chat template of a checkpoint cannot be used for conversations.",
            "Use an instruction-tuned checkpoint, or correct its chat template.",
        ),
        (
            "checkpoint.damaged",
            "A checkpoint is incomplete, or one of its files is damaged.",
            "Use an older checkpoint, or copy this one again.",
        ),
        (
            "checkpoint.missing",
            "A folder contains no checkpoint or no model that can be loaded.",
            "Give the folder of a checkpoint.",
        ),
        (
            "checkpoint.not_finite",
            "The weights, or the logits computed from them, are not finite numbers.",
            "Use an older checkpoint and lower the learning rate, or correct the model's config.json.",
        ),
        (
            "checkpoint.not_of_a_run",
            "The checkpoint does not belong to a run, so its gyms and users are not known.",
            "Name a run, or a checkpoint's folder in a run.",
        ),
        (
            "checkpoint.other_settings",
            "A checkpoint belongs to another model, recipe or set of tasks.",
            "Continue with the settings that the checkpoint was trained with.",
        ),
        (
            "checkpoint.unsafe",
            "A checkpoint names files outside its folder, or code from elsewhere.",
            "Do not use it, or remove the field that the message names.",
        ),
        (
            "checkpoint.wrong_step",
            "A stage cannot start from the step at which this checkpoint ends.",
            "Give the checkpoint of the step before the stage.",
        ),
        (
            "claim.bad_check",
            "A check does not apply to this claim.",
            "Choose another check of the claim.",
        ),
        (
            "claim.bad_file",
            "The file of a claim or of an arm is missing or inconsistent.",
            "Correct the file, or give the arm another name.",
        ),
        (
            "claim.bad_result",
            "The stored results of a cross-play study are damaged, or of another version.",
            "Run the study again. Finished runs and evaluations are reused.",
        ),
        (
            "claim.no_such_study",
            "No claim, sweep or file of a study has this name.",
            "Use the name that the message proposes, or give a YAML file.",
        ),
        (
            "claim.unknown_cost",
            "The cost of a study cannot be estimated, because a model's size or a GPU's speed is not known.",
            "Choose a profile with a known model and GPU.",
        ),
        (
            "compare.bad_sides",
            "The sides of a comparison do not select what can be compared.",
            "Write the sides as the message shows, one recipe each.",
        ),
        (
            "compare.no_evaluation",
            "The runs have no held-out evaluation, or no scored task in common.",
            "Evaluate them on the same tasks first.",
        ),
        (
            "credit.bad_package",
            "An installed package defines a credit rule that cannot be used.",
            "Uninstall one of the packages, or correct its rule.",
        ),
        (
            "credit.bad_setting",
            "A setting of the credit is outside its range.",
            "Use the value that the message names.",
        ),
        (
            "credit.negative",
            "Form released inverts the sign of negative credit.",
            "Set credit.form to paper, or credit.shaping to equalized.",
        ),
        (
            "credit.no_effect",
            "The credit's setting would have no effect with this algorithm.",
            "Set it to the value in the message, or choose another algorithm.",
        ),
        (
            "credit.out_of_range",
            "Rewards are outside the range that the credit rule can use.",
            "Scale the gym's rewards, or use shaping equalized.",
        ),
        (
            "credit.unknown_rule",
            "There is no shaping, score or advantage form of this name.",
            "Use one of the names in the message, or install the package that defines it.",
        ),
        (
            "demonstrations.no_script",
            "The gym has no scripted demonstrator for this environment.",
            "Name a model in demonstrations.policy.",
        ),
        (
            "demonstrations.too_few",
            "There are no demonstrations, or too few, to train on.",
            "Distil more demonstrations, or follow the message.",
        ),
        (
            "export.bad_target",
            "The target of an export cannot be used.",
            "Give a folder or an address that can be written.",
        ),
        (
            "file.damaged",
            "A file of a run or of a recipe fails its checksum or cannot be read.",
            "Restore it from a backup, or start the run again with fresh=true.",
        ),
        ("file.missing", "A file that was named does not exist.", "Correct the path."),
        (
            "file.not_writable",
            "A file or folder cannot be written.",
            "Free space, make it writable, or choose another place.",
        ),
        (
            "file.unknown_name",
            "There is no recipe, profile, suite or claim of this name.",
            "Use one of the names in the message, or give a path.",
        ),
        (
            "file.unreadable",
            "A file cannot be read, or its content is not of the expected kind.",
            "Correct the file at the place that the message names.",
        ),
        (
            "gate.bad_policy",
            "The policy of a release gate has an unknown key, rule, metric or population, or cannot be read.",
            "Correct the key that the message names; docs/comparing.md shows a policy.",
        ),
        (
            "gate.bad_sides",
            "A release gate was asked about sides that cannot be paired.",
            "Name two runs, or two recipes with several seeds each.",
        ),
        (
            "gate.score_range",
            "A score is outside the range that the limits of a release gate assume.",
            "Write the smallest and largest possible score into the policy.",
        ),
        (
            "gym.bad_option",
            "The gym does not have this option, or the option has an unusable value.",
            "Use one of the options in the message.",
        ),
        (
            "gym.bad_package",
            "An installed package defines a gym that cannot be used.",
            "Uninstall one of the packages, or correct its module.",
        ),
        (
            "gym.misused",
            "A gym or a session was used before its reset, after its end, or twice.",
            "Reset it, or make a new one for each episode.",
        ),
        (
            "gym.no_key",
            "The web search of a gym needs a key.",
            "Set the environment variable that the message names, or use the local tasks.",
        ),
        ("gym.no_such_gym", "There is no gym of this name.", "Use one of the names in the message."),
        (
            "gym.not_installed",
            "A gym or tool server needs a package that is not installed.",
            "Install the named package.",
        ),
        (
            "gym.not_replayable",
            "A stored conversation cannot be replayed in its gym.",
            "Use a gym and a user that are reproducible, with unchanged rules.",
        ),
        (
            "gym.not_scored",
            "A turn has no score, because its user, its judge or its gym failed.",
            "Check the user model, then start a new episode.",
        ),
        (
            "gym.program_failed",
            "A program that the gym starts failed, such as Chromium or the speech program.",
            "Install the program, or correct the variable that names it.",
        ),
        (
            "gym.server_failed",
            "A server that the gym asks gave no usable reply.",
            "Check that the server runs at the address in the message.",
        ),
        (
            "hardware.cluster_in_use",
            "Another training runs on the Ray cluster.",
            "Wait for its end, or start another Ray cluster.",
        ),
        (
            "hardware.no_cluster",
            "Several nodes need a Ray cluster that runs on all of them.",
            "Start Ray on each node, and set hardware.ray_address to auto.",
        ),
        (
            "hardware.too_few_gpus",
            "The machine has fewer GPUs or slots than the stage needs.",
            "Give the run more of them, or lower hardware.gpus.",
        ),
        (
            "hardware.too_little_memory",
            "A stage needs more GPU memory than there is.",
            "Use one of the ways in the message, or a smaller model.",
        ),
        (
            "hardware.uneven_batch",
            "A batch cannot be divided evenly among minibatches or GPUs.",
            "Choose a batch that is a multiple of the number in the message.",
        ),
        ("hub.failed", "A hub took no upload.", "Check the token, the model's name and the network, then repeat."),
        ("hub.no_token", "There is no token for the hub.", "Set HF_TOKEN to a token with write access."),
        (
            "import.broken_file",
            "A file of conversations is damaged, or it breaks the rules of its format. Nothing was imported.",
            "Correct the file at the place in the message, or give the right --format.",
        ),
        (
            "import.not_supported",
            "A variant of a format cannot be imported.",
            "Save the conversations in the form that the message names.",
        ),
        (
            "import.run_exists",
            "The run to import is already in the warehouse.",
            "Nothing is left to do, unless you want another warehouse.",
        ),
        (
            "import.too_large",
            "A line or a value of a file is beyond the size limit, or an archive inflates too far. Nothing was imported.",
            "Check the file. Split it, if it is sound.",
        ),
        (
            "import.unknown_format",
            "A file is in no format that can be imported.",
            "Give --format, or convert the file to chat lines with messages.",
        ),
        (
            "install.missing",
            "A Python package or an interpreter is missing in this environment.",
            "Install it, or give the right interpreter as hardware.python (docs/gpu.md).",
        ),
        (
            "judge.no_gold_calls",
            "Turns can be judged only in gyms with gold calls.",
            "Use a gym with gold calls, such as tau, or remove the judge.",
        ),
        (
            "judge.no_reply",
            "The judge gave no usable reply after all retries, so the turn has no reward.",
            "Check the judge's server and model.",
        ),
        ("judge.none", "No judge is set, and one is needed.", "Name a judge with --judge."),
        ("labels.none", "No conversation has a label of this set.", "Label them with `userrl scan`."),
        (
            "labels.nothing_to_compare",
            "A label set has no turn or conversation that a scanner and a person both labelled.",
            "Label some of its conversations on the page.",
        ),
        (
            "labels.several_sources",
            "A label set has labels from several sources, such as a pattern and a person.",
            "Name one, as in label:apology/person.",
        ),
        (
            "log.cannot_write",
            "The turn log or a run's record cannot be written.",
            "Free space or correct the folder, then run again; what was logged is kept.",
        ),
        ("log.full", "A run or a process has reached the most that a log can number.", "Start a new run or a new log."),
        (
            "log.misused",
            "The turn log was called in the wrong order or with wrong values.",
            "Correct the calling code.",
        ),
        (
            "model.bad_address",
            "The address of a model server cannot be used.",
            "Give an address such as http://127.0.0.1:8000/v1 that every node can reach.",
        ),
        (
            "model.no_key",
            "A model server needs a key that is not set.",
            "Set the environment variable in the message, or give the address of your own server.",
        ),
        (
            "model.not_converted",
            "The conversion of a fetched model failed its check.",
            "Install the versions of constraints.txt, then fetch the model again.",
        ),
        (
            "model.not_downloaded",
            "A model could not be downloaded.",
            "Connect this machine, or bring a copy and give it with --from FILE.",
        ),
        (
            "model.not_fetched",
            "A model is not on this machine, or its folder is incomplete.",
            "Fetch it with `userrl model fetch`.",
        ),
        (
            "model.not_served",
            "A model is needed, and no server of it is given.",
            "Set hardware.user_gpus, hardware.user_url or OPENAI_BASE_URL.",
        ),
        (
            "model.not_started",
            "The server of a model could not be started.",
            "Read its last output in the message, and correct the command.",
        ),
        (
            "model.server_down",
            "A model server does not answer.",
            "Start the server, then run again; training continues from its last checkpoint.",
        ),
        (
            "model.unsupported",
            "The model cannot be trained with these settings.",
            "Change the settings that the message names, or use another model.",
        ),
        (
            "model.wrong_hash",
            "A file of a model has another hash than the one that was checked, so it was not used.",
            "Give a copy with the right hash.",
        ),
        (
            "people.bad_plan",
            "A plan for a study with people does not fit its tasks or agents, or differs from the stored one.",
            "Change the plan's file as the sentence says.",
        ),
        ("people.conversation_over", "A person's conversation is over or unknown.", "Begin another one under People."),
        ("people.left", "The person left, or the conversation was stopped.", "Begin another conversation."),
        (
            "people.not_playable",
            "A person cannot play this side of this gym.",
            "Choose one of the gyms in the message.",
        ),
        ("people.study_full", "All seats of the study are taken.", "Raise `persons` in a new study."),
        ("people.unknown_code", "Nobody in the study has this code.", "Type the code that was shown at the start."),
        (
            "policy.no_reply",
            "The policy gave no usable reply in time, so the trajectory is not admitted.",
            "Check the server or the rollout engine of the policy.",
        ),
        (
            "policy.tools_refused",
            "The policy's server refuses requests with tools.",
            "Serve the model with a tool parser, or set tools to off.",
        ),
        ("process.died", "A process ended without a result.", "Read its last output in the message, then run again."),
        (
            "process.failed",
            "A process ended with an error that has no code of its own.",
            "Read the message, correct the cause, then run again.",
        ),
        (
            "process.stalled",
            "A process made no progress for too long and was stopped.",
            "Read its last output, then run again.",
        ),
        (
            "profile.none_fits",
            "No profile, or not the chosen one, fits this machine.",
            "Choose a profile that fits, such as laptop, or change its hardware settings.",
        ),
        (
            "profile.other_recipe",
            "The recipe has stages for other profiles only.",
            "Use the profile in the message, or extend the recipe with stages of your own.",
        ),
        (
            "profile.recipe_key",
            "A profile sets a key that belongs to the recipe.",
            "Move the key to the recipe or to the overrides.",
        ),
        (
            "recipe.bad_override",
            "An override cannot be applied.",
            "Give dotted keys of the recipe, such as algorithm.lr.",
        ),
        ("recipe.circular", "A recipe extends itself.", "Remove one extends."),
        ("recipe.conflict", "Two settings exclude each other.", "Omit one of them, as the message says."),
        (
            "recipe.holds_key",
            "A recipe or a parameter contains a key or a password, which would be stored.",
            "Put the key into an environment variable.",
        ),
        (
            "recipe.invalid_value",
            "A value in a recipe or another settings file is not allowed.",
            "Correct the field that the message names; docs/recipes.md lists the fields.",
        ),
        ("recipe.missing_key", "A required setting is missing.", "Add the field that the message names."),
        (
            "recipe.no_such_step",
            "The recipe has no training step of this number, or no stages.",
            "Use a step in the range that the message names.",
        ),
        (
            "recipe.short_horizon",
            "No task of a gym can be solved within the horizon of a stage.",
            "Raise the horizon, or set allow_short_horizon: true.",
        ),
        (
            "recipe.unknown_key",
            "A settings file has a key that does not exist.",
            "Use the nearest key, which the message names, or remove it.",
        ),
        ("run.in_use", "Another process works on this run.", "Wait for it, or stop it."),
        ("run.no_checkpoint", "The run has not chosen a checkpoint.", "Wait for it, or name a checkpoint's folder."),
        (
            "run.no_conversations",
            "There are no conversations of the kind that was asked for.",
            "Choose another run or phase, or play some.",
        ),
        ("run.no_curve", "No training or validation step has finished.", "Wait for the first steps of a stage."),
        ("run.no_report", "The run has no report yet.", "Wait until the run has finished."),
        ("run.no_such_run", "No run has this name.", "List all runs with `userrl runs list`."),
        (
            "run.no_such_trajectory",
            "There is no finished trajectory with this number.",
            "List trajectories with `userrl sql`.",
        ),
        ("run.stopped", "The run was stopped.", "Start it again to continue."),
        (
            "scanner.bad_package",
            "Several installed packages define a scanner of the same name.",
            "Uninstall one of the packages, or rename its scanner.",
        ),
        (
            "schedule.bad_package",
            "Several installed packages define a kind of horizon schedule of the same name.",
            "Uninstall one of the packages, or rename its schedule.",
        ),
        ("search.bad_words", "A text search has no words, or words that are too frequent.", "Search for a rarer word."),
        ("search.no_index", "The text index is missing or outdated.", "Run `userrl warehouse compact`."),
        (
            "server.bad_parameters",
            "The server rejected the parameters of a run.",
            "Correct the parameter in the message.",
        ),
        ("server.full", "The server has no room for another session.", "Close a session, or come back later."),
        (
            "server.no_deployment",
            "There is no deployment of this name.",
            "Create the deployments with `userrl deploy`.",
        ),
        ("server.not_running", "No Prefect server runs here.", "Start one with `userrl server`."),
        ("server.not_started", "The server could not be started.", "Read the log that the message names."),
        (
            "server.port_taken",
            "The server cannot listen on this port.",
            "Choose another port, or use the running server.",
        ),
        (
            "sql.closed_function",
            "The query uses files, extensions or settings, which are closed to it.",
            "Use only the tables and views of the warehouse.",
        ),
        (
            "sql.not_a_select",
            "The text is not one statement that only reads.",
            "Write one SELECT, DESCRIBE, EXPLAIN or PIVOT.",
        ),
        ("sql.too_large", "The query or its answer needs too much memory.", "Ask for fewer rows, or aggregate first."),
        ("sql.too_long", "The query took too long.", "Narrow it, for example to one run."),
        (
            "sql.wrong",
            "DuckDB cannot answer the query.",
            "Correct the SQL; docs/warehouse.md lists tables and columns.",
        ),
        (
            "stage.damaged",
            "The job or the result of a stage does not fit its files.",
            "Delete the stage's folder, then run again.",
        ),
        (
            "stage.no_such_stage",
            "The run has no stage of this name in this order.",
            "Use one of the stages in the message.",
        ),
        (
            "stage.not_finished",
            "A stage needs the result of an earlier stage that has not finished.",
            "Run the stages before it, or omit from_stage.",
        ),
        ("sweep.bad_space", "A sweep's file cannot be used.", "Correct the field that the message names."),
        (
            "sweep.changed_space",
            "A sweep was begun with another space, recipe, seed, sampler or objective.",
            "Give the space another name, or begin the next edition with --fresh.",
        ),
        (
            "sweep.damaged_journal",
            "The file of a sweep's study is damaged.",
            "Restore it from a copy, or begin the next edition with --fresh.",
        ),
        ("sweep.no_such_sweep", "There is no sweep of this name.", "Use one of the names in the message."),
        ("sweep.no_value", "A sweep or a trial has no value of the objective yet.", "Wait for a trial to finish."),
        (
            "sweep.storage",
            "The study's storage cannot be opened.",
            "Give the storage's address again, or rename the sweep.",
        ),
        (
            "task.bad_option",
            "The tasks of a gym do not have this tier, depth or other option.",
            "Use one of the values in the message.",
        ),
        ("task.duplicate", "A task occurs twice, or in two splits.", "Give every task once, with its own id."),
        (
            "task.file_missing",
            "Published tasks are not at this place.",
            "Give the root folder of a complete copy of the released repository.",
        ),
        (
            "task.file_unreadable",
            "A file of tasks cannot be read.",
            "Copy it again from the release, or correct the line that the message names.",
        ),
        (
            "task.invalid_field",
            "A field of a task is missing or has a wrong value.",
            "Correct the field in the file and entry that the message names.",
        ),
        ("task.no_such_task", "There is no task with this id.", "List the tasks with `userrl tasks list GYM`."),
        (
            "task.none_imported",
            "A recipe or suite needs published tasks that were not imported.",
            "Import them with `userrl tasks import --from FOLDER`.",
        ),
        (
            "task.none_left",
            "No task is left for a gym, a split or a batch.",
            "Choose other tasks or another split, or lower the batch.",
        ),
        (
            "task.not_playable",
            "A task cannot be solved or scored as it is written.",
            "Correct the task, or leave it out.",
        ),
        ("task.not_published", "The gym has no published tasks.", "Use the gym's own tasks."),
        ("task.too_few", "The gym has fewer tasks than were asked for.", "Ask for at most the number in the message."),
        ("task.wrong_gym", "A task belongs to another gym.", "Give tasks of this gym."),
        (
            "training.backend_cannot",
            "The backend cannot train with these settings.",
            "Change the setting that the message names, or use the other backend.",
        ),
        ("training.bad_call", "A part of the trainer was called without what it needs.", "Correct the calling code."),
        (
            "training.diverged",
            "A loss or a weight is no longer a finite number.",
            "Start a new run with a lower learning rate.",
        ),
        (
            "training.no_checkpoint",
            "A trainer ended without the checkpoint of its last step.",
            "Read the output that the message names, then run again.",
        ),
        (
            "user.bad_option",
            "The gym has no user of this kind, or the user has no such option.",
            "Use one of the kinds or options in the message.",
        ),
        (
            "user.no_reply",
            "The simulated user gave no usable reply after all retries, so the turn has no reward.",
            "Check the user's server and model.",
        ),
        (
            "warehouse.busy",
            "The warehouse is changing, or another process works on it.",
            "Ask again in a moment, or wait for the process to end.",
        ),
        (
            "warehouse.damaged",
            "A file of the warehouse is missing or damaged.",
            "Run `userrl warehouse check --repair`.",
        ),
        ("warehouse.missing", "There is no warehouse at this place.", "Start a run, or name the warehouse's folder."),
        ("warehouse.newer_schema", "The warehouse was written by a newer version.", "Update userrl."),
        ("warehouse.no_memory", "There is too little memory to read a pack.", "Free memory and check again."),
        (
            "warehouse.not_compacted",
            "Compaction stopped; nothing was lost.",
            "Free space and memory, then compact again.",
        ),
        (
            "warehouse.unknown_query",
            "There is no named query of this name, or it has other parameters.",
            "Use one of the names in the message.",
        ),
    )
}
"""Every code with its meaning and its remedy, sorted."""
