"""Conversion of a pretrained model to a checkpoint folder that can be trained, and the check of the result.

transformers reads the GGUF file (with the package ``gguf``) and undoes the quantisation. Its conversion leaves three
faults in a ChatML tokenizer: the end token is the token that starts a turn, the padding token is missing, and
decoding removes spaces. A tied output layer that the file has as a tensor of its own becomes a second matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from userrl_core.errors import CheckpointError, first_line
from userrl_core.training.config import ModelConfig
from userrl_core.training.local.model import check_names, load_model, parameters
from userrl_core.training.local.text.tokenizer import END, PAD, START, decode_each_token, load_tokenizer

TEXT = (
    "When I was a child, my grandmother kept a small garden behind her house. Every morning in summer she went out before "
    "breakfast to water the tomatoes and the beans, and I was allowed to carry the small can. She told me that plants need "
    "three things: light, water and patience. I did not understand the last one then. Later, when I had a garden of my own, "
    "I learned that she was right. In 1998 we grew 40 pumpkins, and most of them ended up as soup for the neighbours."
)
"""Ordinary English text that we wrote for the perplexity check."""
QUESTION = "What is the capital of France? Answer in one short sentence."
ANSWER_TOKENS = 24
SAME_MATRIX = 0.3
"""Relative difference of two matrices below which they are one that was quantised twice. 4 bits change a matrix by about .1;
two trained matrices differ by more than 1.
"""


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Result of the check. answer: the greedy reply to `QUESTION`. perplexity: per token, of `TEXT`."""

    answer: str
    perplexity: float
    parameters: int
    model_type: str


def convert(source: Path, folder: Path) -> None:
    """Write a GGUF file, or a folder of a Hugging Face model, as a checkpoint folder in float32.

    Raises CheckpointError where transformers cannot read the source, or does not read all of its weights.
    """
    try:
        if source.is_dir():
            model: Any = load_model(source, ModelConfig(path=str(source)))
            tokenizer = load_tokenizer(source)
        else:
            named: dict[str, Any] = {"gguf_file": source.name, "trust_remote_code": False}
            tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **named)
            model, report = AutoModelForCausalLM.from_pretrained(
                str(source.parent), **named, dtype=torch.float32, output_loading_info=True
            )
            check_names(report, str(source))
            _check_count(model, source)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            "model.unsupported",
            f"transformers cannot read {source} ({first_line(error)}). Use an architecture that it supports.",
        ) from error
    correct_tokenizer(tokenizer)
    tie_output_layer(model)
    if tokenizer.eos_token_id is not None:
        for config in (model.config, model.generation_config):
            config.eos_token_id = tokenizer.eos_token_id
            config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check_count(model: Any, source: Path) -> None:
    """Raise CheckpointError for a GGUF file with weights that transformers left out: it does not report these."""
    from gguf import GGUFReader  # imported here: only a fetch needs it

    # Factors of the positions are in the model's config.
    stored = sum(int(tensor.n_elements) for tensor in GGUFReader(source).tensors if not tensor.name.startswith("rope_"))
    output = model.get_output_embeddings()
    twice = 0 if output is None or output.weight is not model.get_input_embeddings().weight else output.weight.numel()
    read = parameters(model)
    if stored not in (read, read + twice):
        raise CheckpointError(
            "checkpoint.damaged",
            f"The model of {source} has {read:,} weights, and the file has {stored:,}. Use another file.",
        )


@torch.no_grad()
def tie_output_layer(model: Any) -> None:
    """Make the output layer the embedding where a GGUF file has one matrix twice, quantised in two ways.

    The output layer's values are kept: quantisers give it at least as many bits. An untied layer differs from the
    embedding by more than `SAME_MATRIX` and stays.
    """
    output, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if output is None or output.weight is embedding.weight or output.weight.shape != embedding.weight.shape:
        return
    difference = (output.weight - embedding.weight).norm() / embedding.weight.norm()
    if float(difference) < SAME_MATRIX:
        embedding.weight = output.weight
        model.config.tie_word_embeddings = True


def correct_tokenizer(tokenizer: Any) -> None:
    """Correct the decoding, and the end token and the padding of a ChatML tokenizer."""
    decode_each_token(tokenizer)
    known = tokenizer.get_vocab()
    if END not in known or tokenizer.eos_token != START:
        return
    tokenizer.eos_token = END
    if tokenizer.pad_token is None and PAD in known:
        tokenizer.pad_token = PAD
    tokenizer.clean_up_tokenization_spaces = False


@torch.inference_mode()
def check(folder: Path) -> ModelCheck:
    """Load a converted model and return its greedy answer and its perplexity. Raises CheckpointError where it cannot speak."""
    model, tokenizer = load_model(folder, ModelConfig(path=str(folder))), load_tokenizer(folder)
    perplexity = perplexity_of(model, tokenizer, TEXT)
    if not math.isfinite(perplexity):
        raise CheckpointError(
            "model.not_converted",
            f"The converted model in {folder} has no finite perplexity, so the conversion failed. Install the "
            "versions of constraints.txt.",
        )
    opening = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    ids = model.generate(
        **opening,
        max_new_tokens=ANSWER_TOKENS,
        do_sample=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=pad,
    )
    answer = tokenizer.decode(ids[0, opening["input_ids"].shape[1] :], skip_special_tokens=True)
    return ModelCheck(str(answer).strip(), perplexity, parameters(model), str(model.config.model_type))


@torch.inference_mode()
def perplexity_of(model: Any, tokenizer: Any, text: str) -> float:
    """Return the perplexity per token of a text, without its first token."""
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)], device=next(model.parameters()).device)
    logits = model(input_ids=ids).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:]).exp())
