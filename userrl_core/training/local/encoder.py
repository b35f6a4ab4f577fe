"""Embeddings of utterances by a pretrained BERT encoder, as means of a layer's states, scaled to length 1.

The mean of the last layer is the pooling that all-MiniLM-L6-v2 was trained with (arXiv 1908.10084, section 3). Earlier layers
hold more of the wording, which tells dialogue acts apart better than the topic does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertModel

from userrl_core.errors import CheckpointError, first_line
from userrl_core.training.model_files import check_files

MAX_TOKENS = 128
"""Tokens of a text that are read; the rest is cut."""
BATCH = 64
LAYERS = (2, 3, 4)
"""Layers whose means `read` returns, of the six. The later ones add nothing to telling acts apart."""
MAX_BEFORE, MAX_START, MAX_END = 24, 24, 40
"""Most tokens of the words before, and of the beginning and the end of a text in `read`."""
CLS, SEP = 101, 102
"""BERT's tokens around two texts."""
PARAPHRASES = ("How do I cancel my booking?", "I would like to call off the reservation.")
"""Two texts whose cosine shows that the encoder computes what it did when it was checked."""


class SentenceEncoder:
    """An encoder in inference mode.

    folder: of a model with tokenizer.json; CheckpointError for another one. layers: how many are computed, by default all.
    `read` needs no more than its last layer.
    """

    def __init__(self, folder: Path, layers: int | None = None) -> None:
        check_files(folder)
        fewer = {} if layers is None else {"num_hidden_layers": layers}
        try:
            self._model = BertModel.from_pretrained(str(folder), use_safetensors=True, local_files_only=True, **fewer)
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise CheckpointError(
                "model.unsupported",
                f"{folder} holds no sentence encoder that can be read ({first_line(error)}). Fetch it again.",
            ) from error
        self._model.eval()
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(tensor.numel() for tensor in self._model.parameters())

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings of texts, [N, D]. Texts of similar length share a batch, so little is padding."""
        tokens = [encoding.ids[:MAX_TOKENS] for encoding in self._tokenizer.encode_batch(list(texts))]
        embeddings_ND = np.zeros((len(tokens), self._model.config.hidden_size), dtype=np.float32)
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            width = max(len(tokens[index]) for index in batch)
            ids_BL = torch.tensor([tokens[index] + [0] * (width - len(tokens[index])) for index in batch])
            mask_BL = torch.tensor([[1] * len(tokens[i]) + [0] * (width - len(tokens[i])) for i in batch])
            states_BLD = self._model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
            sums_BD = (states_BLD * mask_BL[..., None]).sum(1)
            embeddings_ND[batch] = torch.nn.functional.normalize(sums_BD, dim=1).numpy()
        return embeddings_ND

    @torch.inference_mode()
    def read(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the embeddings of texts, each read after the words before it, [N, L * D].

        pairs: the words before, and the text. Words before are cut at their beginning, a long text in its middle. Of a pair
        only the text's own tokens are averaged.
        """
        rows = [self._pair(before, text) for before, text in pairs]
        embeddings_NE = np.zeros((len(rows), len(LAYERS) * self._model.config.hidden_size), dtype=np.float32)
        order = sorted(range(len(rows)), key=lambda index: sum(map(len, rows[index])))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            width = max(sum(map(len, rows[index])) for index in batch)
            ids_BL, second_BL = (torch.zeros(len(batch), width, dtype=torch.long) for _ in range(2))
            for at, index in enumerate(batch):
                first, second = rows[index]
                ids_BL[at, : len(first) + len(second)] = torch.tensor(first + second)
                second_BL[at, len(first) : len(first) + len(second)] = 1
            states = self._model(
                input_ids=ids_BL,
                attention_mask=(ids_BL > 0).long(),
                token_type_ids=second_BL,
                output_hidden_states=True,
            ).hidden_states
            text_BL = (second_BL * (ids_BL != SEP)).float()
            means = [torch.nn.functional.normalize((states[n] * text_BL[..., None]).sum(1), dim=1) for n in LAYERS]
            embeddings_NE[batch] = torch.cat(means, 1).numpy()
        return embeddings_NE

    def _pair(self, before: str, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens of both segments."""
        first, second = (self._tokenizer.encode(segment, add_special_tokens=False).ids for segment in (before, text))
        if len(second) > MAX_START + MAX_END:
            second = second[:MAX_START] + second[-MAX_END:]
        return [CLS, *first[-MAX_BEFORE:], SEP], [*second, SEP]

    def similarity(self) -> float:
        """Return the cosine of `PARAPHRASES`."""
        first_D, second_D = self.embed(PARAPHRASES)
        return float(first_D @ second_D)
