"""The shipped model's files: writing them with a record, loading them, checking them against it.

``recipe.json`` records the settings and seeds of the warm start, the measured figures over all
1319 test rows, the number of parameters, the library versions, and the SHA-256 of every other
file in the folder.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harness.digest import parse_json, sha256_file
from harness.errors import DocumentError, ServiceError
from harness.local_service.band import GREEDY_BAND, MAX_ANSWER_TOKENS, SAMPLED_REWARD_BAND, measure
from harness.local_service.task import TASK_SEED, generate_problems
from harness.local_service.tokenizer import MODEL_DIR, RENDERER, load_tokenizer
from harness.local_service.warm_rows import task_renderer

WEIGHTS_FILE = "model.safetensors"
RECORD_FILE = "recipe.json"
SAMPLING_SEED = 0
FIGURE_TOLERANCES = {"greedy": ("accuracy", 0.005), "sampled": ("reward", 0.04)}
"""Largest difference between a recorded and a remeasured mean of 1319 answers. Another machine
rounds logits otherwise: that flips a few greedy answers, and may change the sampled ones
altogether, whose mean has a standard error of about 0.013."""

Figures = dict[str, dict[str, float]]
"""Scores by way of decoding: ``greedy`` and ``sampled``."""


def load_model(model_dir: Path | None = None) -> Qwen3ForCausalLM:
    """Return the float32 model in ``model_dir``, by default the shipped one, ready to infer.

    Raises:
        DocumentError: when the folder holds no weights, or others than the configuration asks for.
    """
    folder = model_dir or MODEL_DIR
    if not (folder / WEIGHTS_FILE).is_file():
        raise DocumentError(
            "the embedded model's weights are missing",
            expected=WEIGHTS_FILE,
            where=str(folder),
            fix="run make local-model, or name a folder that holds the model",
        )
    model = Qwen3ForCausalLM(Qwen3Config.from_pretrained(folder)).eval()
    absent, unknown = model.load_state_dict(load_file(folder / WEIGHTS_FILE), strict=False)
    # The unembedding is the embedding: it is stored once.
    if absent != ["lm_head.weight"] or unknown:
        raise DocumentError(
            "the embedded model's weights do not fit its configuration",
            expected="every tensor but lm_head.weight",
            found=f"without {absent}, with unknown {unknown}",
            where=str(folder),
            fix="restore the folder, or run make local-model",
        )
    return model


def load_record(model_dir: Path | None = None) -> dict[str, Any]:
    """Return ``recipe.json`` of ``model_dir``, by default of the shipped model.

    Raises:
        DocumentError: when it is absent or not strict JSON.
    """
    path = (model_dir or MODEL_DIR) / RECORD_FILE
    if not path.is_file():
        raise DocumentError("the model has no record", expected=RECORD_FILE, where=str(path))
    return parse_json(path.read_bytes(), where=str(path))


def save_model(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    training: dict[str, Any],
    out: Path,
) -> Path:
    """Write the model, its tokenizer and its record into ``out``; return the record's path.

    Args:
        model: trained float32 weights; the unembedding is the embedding, so it is stored once.
        tokenizer: its tokenizer.
        training: settings, seeds and steps, for the record.
        out: a folder, made if absent.
    """
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    del weights["lm_head.weight"]
    (out / WEIGHTS_FILE).write_bytes(save(weights, metadata={"format": "pt"}))
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = {
        "version": 1,
        "training": training,
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "task": {"seed": TASK_SEED, "renderer": RENDERER, "max_answer_tokens": MAX_ANSWER_TOKENS},
        "figures": measure_figures(out),
        "versions": {
            "python": platform.python_version(),
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "sha256": file_digests(out),
    }
    path = out / RECORD_FILE
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def file_digests(model_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in the folder but the record itself, by name."""
    files = sorted(path for path in model_dir.iterdir() if path.is_file())
    return {path.name: sha256_file(path) for path in files if path.name != RECORD_FILE}


def measure_figures(model_dir: Path) -> Figures:
    """Measure the saved model over all 1319 test rows, greedily and sampled at temperature 1."""
    model, tokenizer = load_model(model_dir), load_tokenizer(model_dir)
    renderer = task_renderer(tokenizer)
    problems = generate_problems("test", TASK_SEED)
    greedy = measure(model, tokenizer, renderer, problems)
    sampled = measure(model, tokenizer, renderer, problems, sampling_seed=SAMPLING_SEED)
    return {"greedy": greedy.record(), "sampled": sampled.record()}


def check_model(model_dir: Path) -> list[str]:
    """Check files against the record and remeasured figures against record and band.

    Returns:
        One line a figure, for a person.

    Raises:
        DocumentError: when a file is not the recorded one.
        ServiceError: when a figure is not the recorded one, or outside its band.
    """
    record = load_record(model_dir)
    check_digests(model_dir, record)
    figures = measure_figures(model_dir)
    _check_against_record(figures, record["figures"])
    check_band(figures)
    return [f"{way}: {json.dumps(scores)}" for way, scores in figures.items()]


def check_digests(model_dir: Path, record: dict[str, Any]) -> None:
    """Refuse a folder whose files are not those of the record.

    Raises:
        DocumentError: naming the files that differ, are missing or are extra.
    """
    found, recorded = file_digests(model_dir), record["sha256"]
    names = sorted(n for n in found | recorded if found.get(n) != recorded.get(n))
    if names:
        raise DocumentError(
            "files of the embedded model are not the recorded ones",
            expected=", ".join(f"{name} {recorded.get(name, 'absent')}" for name in names),
            found=", ".join(f"{name} {found.get(name, 'absent')}" for name in names),
            where=str(model_dir),
            fix="restore the folder, or run make local-model",
        )


def check_band(figures: Figures) -> None:
    """Refuse figures outside the bands of issue 2, part 4.

    Raises:
        ServiceError: naming the figure, its value and its band.
    """
    checks = {
        "greedy accuracy": (figures["greedy"]["accuracy"], GREEDY_BAND),
        "sampled reward": (figures["sampled"]["reward"], SAMPLED_REWARD_BAND),
    }
    for name, (value, (low, high)) in checks.items():
        if not low <= value <= high:
            raise ServiceError(
                "the embedded model is outside its band",
                expected=f"{name} in [{low}, {high}]",
                found=f"{value:.4f}",
                fix="warm-start with another seed",
            )


def _check_against_record(figures: Figures, recorded: Figures) -> None:
    for way, (name, tolerance) in FIGURE_TOLERANCES.items():
        value, before = figures[way][name], recorded[way][name]
        if abs(value - before) > tolerance:
            raise ServiceError(
                "a figure of the embedded model is not the recorded one",
                expected=f"{way} {name} {before:.4f} within {tolerance}",
                found=f"{value:.4f}",
                fix="compare library versions with those of recipe.json",
            )
