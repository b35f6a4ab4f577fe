"""The newline after a reply in ChatML, which no model samples.

verl adds it to the conversation for model types that it knows. Of other types, such as Llama, it appends the next message
directly to the end token, although the cold start's conversations have a newline there.
"""

from __future__ import annotations

from typing import Any

CHATML_TYPE = "qwen2"
"""A model type of which verl adds the newline."""


def known_type(tokenizer: Any, model_type: str | None) -> str | None:
    """Return the model type for verl's `create_continuous_token_builder`: one that adds the newline if the template has it."""
    from verl.utils.tokenizer.continuous_token_wiring import (
        ContinuousTokenModelFamily,
        infer_continuous_token_model_family,
    )

    if infer_continuous_token_model_family(hf_model_type=model_type) != ContinuousTokenModelFamily.DEFAULT:
        return model_type
    messages = [{"role": role, "content": "."} for role in ("user", "assistant", "user")]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    single = len(tokenizer.encode("\n", add_special_tokens=False)) == 1
    return CHATML_TYPE if single and "assistant\n.<|im_end|>\n<|im_start|>" in text else model_type
