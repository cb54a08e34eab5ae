"""The tokenizer that SmolLM2's GGUF file holds.

Byte-level BPE with digits apart; ChatML's turn tokens are single special tokens, which the
cookbook's ``qwen3_instruct`` renderer needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.local_service.smollm import smollm_path

_CONTROL = 3
"""GGUF's token type of special tokens."""


def load_smollm_tokenizer() -> PreTrainedTokenizerFast:
    """Return the model's tokenizer.

    Raises:
        UsageError: where the extra is not installed.
    """
    return PreTrainedTokenizerFast(
        tokenizer_object=gguf_tokenizer(smollm_path()),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        clean_up_tokenization_spaces=False,
    )


@cache
def gguf_tokenizer(path: Path) -> Tokenizer:
    """Return the byte-level BPE tokenizer that a GGUF file of the SmolLM family holds."""
    # Imported here: only those who installed the extra have it.
    from gguf import GGUFReader  # pyright: ignore[reportMissingImports] - an optional package

    fields = GGUFReader(path).fields
    tokens: Sequence[str] = fields["tokenizer.ggml.tokens"].contents()
    kinds: Sequence[int] = fields["tokenizer.ggml.token_type"].contents()
    merges: Sequence[str] = fields["tokenizer.ggml.merges"].contents()
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    # "smollm" among llama.cpp's pre-tokenizers: every digit alone, then GPT-2's pieces.
    cut = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    backend.pre_tokenizer = pre_tokenizers.Sequence(cut)
    backend.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    return backend
