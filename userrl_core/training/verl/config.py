"""A recipe's stage as verl's configuration: a list of overrides that can be printed, saved and compared.

Values and their reasons are in `flags`. The order is fixed; the cluster's overrides come last and win.

The list avoids these problems of verl 0.9.1:
- ``trainer.total_training_steps`` is absolute and also overwrites the learning-rate horizon. The rate is therefore
  constant after an absolute number of warm-up steps, so a longer run changes nothing.
- the dataloader's state crashes when data set or batch size change. Rows are read in order, without shuffling, from a
  file with exactly the remaining steps (see `data`), and the saved state is removed.
- ``rollout_rs`` rewrites the response mask, and turns are recovered from that mask. It stays off.
- without ``attn_implementation`` every model is loaded with flash attention, which is not part of verl's environment.
- weights are also saved as a Hugging Face folder, which another number of GPUs, an evaluation or a next stage can load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from userrl_core.errors import Check, ConfigError, first_line, refuse_first
from userrl_core.training.verl.flags import Flags, Value, rl_flags, sft_flags
from userrl_core.training.verl.job import Resume, VerlJob, VerlSftJob
from userrl_core.training.verl.machine.attention import FLASH, refuse_split_sdpa

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+\Z")


def rl_overrides(job: VerlJob, folder: Path, resume: Resume, attention: str = FLASH) -> list[str]:
    """Return verl's overrides for one RL stage. attention: the result of `attention.chosen_attention`.

    Raises ConfigError for settings that verl does not support.
    """
    refuse_what_verl_cannot(job)
    return merged(written(rl_flags(job, folder, resume, attention)), job.cluster.overrides)


def sft_overrides(job: VerlSftJob, folder: Path, model: str, rows: int, attention: str = FLASH) -> list[str]:
    """Return verl's overrides for the cold start. rows: conversations in the training file.

    Raises ConfigError when they do not fill one step.
    """
    sft, cluster = job.sft, job.cluster
    gpus = cluster.cold_start_gpus
    per_epoch = rows // sft.batch
    if per_epoch < 1:
        raise ConfigError(
            "demonstrations.too_few",
            f"{rows} demonstrations do not fill one step of {sft.batch}. Distil more, or lower cold_start.batch.",
        )
    if sft.batch % gpus:
        raise ConfigError(
            "hardware.uneven_batch",
            f"cold_start.batch {sft.batch} must be a multiple of the {gpus} GPUs of the cold start.",
        )
    if sft.schedule == "linear":
        raise ConfigError(
            "training.backend_cannot",
            "verl's SFT trainer has no linear schedule. Set cold_start.schedule to cosine or constant.",
        )
    refuse_split_sdpa(cluster.attention, cluster)
    return merged(written(sft_flags(job, folder, model, per_epoch, attention)), cluster.sft_overrides)


def written(flags: Flags) -> list[str]:
    """Return flags as hydra's overrides."""
    return [f"{key}={literal(flag.value)}" for key, flag in flags.items()]


def agents_file(stage_file: Path) -> str:
    """Return verl's list of agent loops, as YAML (JSON is YAML)."""
    loop = {
        "name": "userrl",
        "_target_": "userrl_core.training.verl.agent_loop.GymAgentLoop",
        "stage_file": str(stage_file),
    }
    return json.dumps([loop], indent=1) + "\n"


def refuse_what_verl_cannot(job: VerlJob) -> None:
    """Raise ConfigError, with a remedy, for settings that verl would interpret differently from the recipe."""
    algorithm, cluster = job.algorithm, job.cluster
    mini = algorithm.batch // algorithm.minibatches * algorithm.group
    attempts = (
        "With backend=verl, the shaping of credit counts an interrupted attempt as a turn. Set credit.shaping to equalized, or "
        "train with backend=local."
    )
    resampled = "With backend=verl, groups without a signal cannot be drawn again. Set credit.filter to drop or keep."
    multiple = f"algorithm.batch {algorithm.batch} must be a multiple of algorithm.minibatches {algorithm.minibatches}."
    uneven = (
        f"A minibatch of {mini} conversations does not divide evenly among {cluster.all_gpus} GPUs. Change algorithm.batch, "
        "algorithm.minibatches or hardware.gpus."
    )
    no_cluster = (
        f"{cluster.nodes} nodes need a running Ray cluster. Start one with 'ray start' on each, and set hardware.ray_address to "
        "auto."
    )
    interrupted = job.intervention is not None and job.credit.shaping != "equalized"
    checks: list[Check] = [
        (interrupted, "training.backend_cannot", attempts),
        (job.credit.filter == "resample", "training.backend_cannot", resampled),
        (algorithm.batch % algorithm.minibatches, "hardware.uneven_batch", multiple),
        (mini % (cluster.all_gpus // cluster.sequence_parallel or 1), "hardware.uneven_batch", uneven),
        (cluster.nodes > 1 and cluster.ray_address is None, "hardware.no_cluster", no_cluster),
    ]
    refuse_first(checks)
    refuse_split_sdpa(job.cluster.attention, job.cluster)


def compose(overrides: Sequence[str], *, name: str = "ppo_trainer") -> Any:
    """Return verl's whole configuration under these overrides, checked by verl's own rules. Needs verl; starts nothing.

    Raises ConfigError with verl's first sentence.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra_compose(config_name=name, overrides=list(overrides))
        OmegaConf.resolve(config)
        if name == "ppo_trainer":
            from verl.trainer.ppo.utils import need_critic, need_reference_policy
            from verl.utils.config import validate_config

            validate_config(config, need_reference_policy(config), need_critic(config))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError) as error:
        raise ConfigError("training.backend_cannot", f"verl rejects this configuration: {first_line(error)}") from error
    return config


def literal(value: Value) -> str:
    """Return a value in the grammar of hydra's command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.match(value):
            return value
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return f"[{','.join(literal(item) for item in value)}]"


def merged(overrides: Sequence[str], more: Sequence[str]) -> list[str]:
    """Merge two lists so that each key occurs once: the last value, at the first one's position."""
    by_key: dict[str, str] = {}
    for override in (*overrides, *more):
        key, equals, _ = override.partition("=")
        if not equals:
            raise ConfigError("argument.malformed", f"'{override}' is not an override. Write key=value.")
        by_key[key.lstrip("+")] = override
    return list(by_key.values())
