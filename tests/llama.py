"""Two-layer random models with a ChatML tokenizer whose template knows no tools, as SmolLM2's: made in a second."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a "
    "helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + "
    "'\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}"
)
"""SmolLM2's."""
CORPUS = [
    "The user wants an outfit: coat, shoes, hat. Ask for each colour, look for outfits, then choose.",
    '<tool_call>\n{"name": "interact_with_env", "arguments": {"choice": "action", "content": "coat"}}\n</tool_call>',
    "system user assistant ask search answer red blue green grey oak elm ash yew 0 1 2 3 4 5 6 7 8 9",
]


def tokenizer(end: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    """end: the token that it names as its end token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # That of tokenizers which transformers reads from a GGUF file.
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.ByteLevel()]
    )
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=end,
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def llama(folder: Path, seed: int = 0, context: int = 2048, entries: int | None = None) -> Path:
    """Write model and tokenizer; returns the folder. entries: of the vocabulary, more than the tokenizer has."""
    tok = tokenizer()
    config = LlamaConfig(
        vocab_size=entries or len(tok),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=0.08,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def gguf_file(file: Path, seed: int = 0, *, tied: bool = True, layers: int = 2, extra: str = "") -> Path:
    """Write a two-layer random Qwen2 as Qwen's releases do, with the output layer as a tensor of its own; returns the file.

    tied: the output layer is the embedding, quantised with more bits. layers: of the two, those with weights. extra: name of
    one more tensor.
    """
    model = json.loads(tokenizer().backend_tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    width, mlp, heads, kv_heads = 64, 128, 4, 2
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.08, shape).astype(np.float32)

    def add(name: str, values: np.ndarray, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32) -> None:
        packed = values if kind == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)

    embedding = matrix(len(tokens), width)
    add("token_embd.weight", embedding, gguf.GGMLQuantizationType.Q5_0)
    add("output.weight", embedding if tied else matrix(len(tokens), width), gguf.GGMLQuantizationType.Q8_0)
    add("output_norm.weight", np.ones(width, np.float32))
    if extra:
        add(extra, np.ones(8, np.float32))
    for layer in range(layers):
        for name, rows in (("attn_q", width), ("attn_k", width // 2), ("attn_v", width // 2)):
            add(f"blk.{layer}.{name}.weight", matrix(rows, width))
            add(f"blk.{layer}.{name}.bias", matrix(rows))
        for name, rows, columns in (
            ("attn_output", width, width),
            ("ffn_gate", mlp, width),
            ("ffn_up", mlp, width),
            ("ffn_down", width, mlp),
        ):
            add(f"blk.{layer}.{name}.weight", matrix(rows, columns))
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
