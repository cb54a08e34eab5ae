"""The embedded model's tokenizer: the task's words, single digits, and every byte.

Text is cut into words (with the space before them), single digits, single punctuation marks
and runs of newlines. A piece that the vocabulary holds is one token; any other piece is spelled
in bytes, so encoding loses nothing and there is no unknown token. Qwen's turn tokens are single
special tokens, which is what the cookbook's ``qwen3_5`` renderers need.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.errors import DocumentError
from harness.local_service.styles import STYLE_TEXTS
from harness.local_service.task_templates import HOLDERS, NAMES, PROBLEM_KINDS, THINGS

MODEL_DIR = Path(__file__).parent / "model"
"""Where the shipped model and its tokenizer lie."""

CONTEXT_TOKENS = 512
"""Longest prompt and answer together that the embedded model accepts."""

RENDERER = "qwen3_5_disable_thinking"
"""The cookbook renderer that makes the embedded model's prompts."""

PAD_TOKEN = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
SPECIAL_TOKENS = (PAD_TOKEN, "<|im_start|>", END_OF_TURN, "<think>", "</think>")

QUESTION_SUFFIX = " Write your answer in \\boxed{} format."
"""What the cookbook's MathEnv appends to every question."""

_PIECES = r" ?\\boxed\{|\n+| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]|\s"
_LETTERS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def task_texts() -> list[str]:
    """Return texts that between them hold every word of the task, its prompt and its answers."""
    words = [*NAMES, *THINGS, *(word for pair in HOLDERS for word in pair)]
    wordings = [wording for kind in PROBLEM_KINDS for wording in kind.wordings]
    units = [f" {step.unit}" for kind in PROBLEM_KINDS for step in kind.steps]
    frame = ["user\n", "assistant\n", "system\n", "\n\n", "####", " +-*/=", QUESTION_SUFFIX]
    spaced = [f" {word}" for word in words]
    return [*frame, *STYLE_TEXTS, *NAMES, *spaced, *map(_without_slots, [*wordings, *units])]


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return the tokenizer whose whole-piece vocabulary is the pieces of ``texts``.

    Ids are the special tokens, then the 256 bytes, then the pieces in sorted order, so the same
    texts in any order give the same tokenizer.
    """
    cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_PIECES), "isolated"), _LETTERS])
    pieces = {piece for text in texts for piece, _ in cut.pre_tokenize_str(text)}
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = [*SPECIAL_TOKENS, *letters, *sorted(pieces - set(letters))]
    vocabulary = {entry: place for place, entry in enumerate(entries)}
    # With no merges, a piece is either one token (ignore_merges) or its bytes.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    backend.pre_tokenizer = cut
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    return _wrap(tokenizer_object=backend)


def load_tokenizer(model_dir: Path | None = None) -> PreTrainedTokenizerFast:
    """Return the tokenizer saved in ``model_dir``, by default the shipped one.

    Raises:
        DocumentError: when the folder holds no tokenizer.json.
    """
    path = (model_dir or MODEL_DIR) / "tokenizer.json"
    if not path.is_file():
        raise DocumentError(
            "the embedded model's tokenizer is missing",
            expected="tokenizer.json",
            where=str(path),
            fix="run make local-model, or name a folder that holds the model",
        )
    return _wrap(tokenizer_file=str(path))


def token_id(tokenizer: PreTrainedTokenizerFast, text: str) -> int:
    """Return the id of a text that is one token.

    Raises:
        DocumentError: when it is not.
    """
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        raise DocumentError(
            "a text that must be one token is not",
            expected="1 token",
            found=f"{len(ids)} for {text!r}",
            where="the embedded tokenizer",
        )
    return ids[0]


def _without_slots(wording: str) -> str:
    """Blank the slots: numbers and words are in the vocabulary on their own."""
    slots = ("name", "other", "things", "holders", "holder", "a", "b", "c", "d")
    return wording.format(**dict.fromkeys(slots, "0"))


def _wrap(**source: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        **source,
        eos_token=END_OF_TURN,
        pad_token=PAD_TOKEN,
        additional_special_tokens=["<|im_start|>", "<think>", "</think>"],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_TOKENS,
    )
