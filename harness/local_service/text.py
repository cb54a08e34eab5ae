"""Token ids to text, for string stops: the folder's tokenizer.json, or the GGUF file's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from harness.local_service.gguf_model import SUFFIX
from harness.local_service.gguf_tokenizer import gguf_tokenizer
from harness.local_service.refusals import RefusalError


class Tokenizer:
    """The base model's tokenizer, loaded on first use; a model folder may do without one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tokenizer.json" if folder.is_dir() else folder
        self._loaded: FastTokenizer | None = None

    def require(self) -> Callable[[list[int]], str]:
        """Return the decoder of token ids, special tokens included.

        Raises:
            RefusalError: if the model folder has no tokenizer.json.
        """
        fast = self._loaded
        if fast is None:
            if not self._path.is_file():
                raise RefusalError(
                    "string stops need the model's tokenizer.json",
                    found="a model folder without one",
                    where="sampling_params.stop",
                    fix="give stop token ids",
                )
            fast = self._loaded = self._load()
        return lambda ids: fast.decode(ids, skip_special_tokens=False)

    def _load(self) -> FastTokenizer:
        if self._path.suffix == SUFFIX:
            return gguf_tokenizer(self._path)
        return FastTokenizer.from_file(str(self._path))
