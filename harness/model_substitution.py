"""The closest model to a planned one that a service does serve, and the revised spec that says so.

A service that does not serve the planned model is a likely case (tinker-notes §10). Nothing is
swapped: the original spec stays refused by its own gates, and what is proposed is a new spec file
whose ``revision`` section records the change before anything is trained (contract §2).

The rule, in this order: the same organisation and family (all of the name before its size), and
trainable, sampleable, with room for ``max_seq_len``; the nearest size by ratio; dense before a
mixture of experts; instruct before other variants; the smaller of two that are as near; the name.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import SpecError
from harness.spec import LoadedSpec, parse_spec
from harness.store import write_new

EXECUTED_MODEL = "executed_base_model"
_SIZE = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?)([BbMm])(?=$|[-_])")
_EXPERTS = re.compile(r"(?:^|[-_])A\d+(?:\.\d+)?[Bb](?=$|[-_])")
_INSTRUCT = frozenset({"", "instruct", "it", "chat"})


@dataclass(frozen=True)
class ServedModel:
    """One line of a service's capabilities.

    Attributes:
        name: as the service calls it.
        max_context_length: tokens; None when it does not say.
        usable: not declared untrainable or unsampleable.
    """

    name: str
    max_context_length: int | None
    usable: bool


@dataclass(frozen=True)
class ModelName:
    """What a model's name says of it.

    Attributes:
        family: organisation and name before the size, in lower case: "qwen/qwen3.5".
        size_b: billions of parameters in all, experts included; None where the name has no size.
        experts: whether only a part of them is active for a token.
        variant: what follows the size, in lower case; "" for most instruct models of today.
    """

    family: str
    size_b: float | None
    experts: bool
    variant: str

    @property
    def instruct(self) -> bool:
        """Whether it is tuned to follow instructions, as far as its name says."""
        return self.variant in _INSTRUCT


def parse_name(name: str) -> ModelName:
    """Read a model's name."""
    found = _SIZE.search(name)
    if found is None:
        return ModelName(name.lower(), None, experts=False, variant="")
    size_b = float(found[1]) * (1.0 if found[2] in "Bb" else 1e-3)
    rest = name[found.end() :]
    variant = _EXPERTS.sub("", rest).strip("-_").lower()
    experts = _EXPERTS.search(rest) is not None
    return ModelName(name[: found.start()].lower(), size_b, experts, variant)


def served_models(capabilities: Mapping[str, Any]) -> tuple[ServedModel, ...]:
    """Return the models of a service's raw capabilities."""
    return tuple(
        ServedModel(
            name=str(row["model_name"]),
            max_context_length=row.get("max_context_length"),
            usable=False not in (row.get("trainable"), row.get("sampleable")),
        )
        for row in capabilities.get("supported_models", ())
    )


def closest_model(
    planned: str, served: Iterable[ServedModel], max_seq_len: int
) -> ServedModel | None:
    """Return the served model that the rule prefers, or None when the family is not served.

    Args:
        planned: the spec's base_model.
        served: what the service offers.
        max_seq_len: tokens that prompt and answer may take together.
    """
    wanted = parse_name(planned)
    if wanted.size_b is None:
        return None
    size_b = wanted.size_b

    def order(model: ServedModel) -> tuple[float, bool, bool, float, str]:
        name = parse_name(model.name)
        found_b = name.size_b or math.inf
        ratio = round(abs(math.log(found_b / size_b)), 9)
        return ratio, name.experts, not name.instruct, found_b, model.name

    candidates = [model for model in served if _is_candidate(model, wanted, max_seq_len)]
    return min(candidates, key=order, default=None)


def _is_candidate(model: ServedModel, wanted: ModelName, max_seq_len: int) -> bool:
    name = parse_name(model.name)
    fits = model.max_context_length is None or model.max_context_length >= max_seq_len
    return model.usable and fits and name.size_b is not None and name.family == wanted.family


def is_served(planned: str, served: Iterable[ServedModel]) -> bool:
    """Return whether the planned model itself can be trained and sampled."""
    return any(model.name == planned and model.usable for model in served)


def revised_document(loaded: LoadedSpec, model: str, reason: str) -> dict[str, Any]:
    """Return the spec with another model: base_model, activation check and revision section.

    Everything else stays as it is, prose included: it speaks of the original.

    Raises:
        SpecError: for a spec that is a revision itself, or that fixes an embedded model.
    """
    if loaded.spec.revision is not None or loaded.spec.embedded is not None:
        raise SpecError(
            "another model cannot be put into this spec",
            expected="an original spec for a service that is named by its address",
            found="a revision" if loaded.spec.revision else "a spec of the embedded service",
            where=loaded.name,
            fix="substitute in the original, then record its other deviations in the new file",
        )
    document = copy.deepcopy(loaded.raw)
    planned = loaded.spec.base_model
    document["base_model"] = model
    for check in document["activation_gate"]["checks"]:
        if check["metric"] == EXECUTED_MODEL and "one_of" in check:
            check["one_of"] = [model]
    # Its times are of the original model, and times are never carried over (contract §6).
    document |= {"feasibility": None, "feasibility_check": None}
    document["revision"] = {
        "of": loaded.name,
        "digest": loaded.digest,
        "deviations": [
            {"field": "model", "original": planned, "effective": model, "reason": reason}
        ],
    }
    return document


def reason_for(planned: str, model: str, served: Iterable[ServedModel]) -> str:
    """Return the deviation's reason: what is served, and by which rule this one was taken."""
    family = parse_name(planned).family
    of_family = sorted(m.name for m in served if parse_name(m.name).family == family)
    return (
        f"the service does not serve {planned}; {model} is the closest it serves by family, then"
        f" size, then instruct (served of the family: {', '.join(of_family)})"
    )


def default_path(loaded: LoadedSpec, model: str) -> Path:
    """Return where the revised spec goes: beside its original, where revisions are looked for."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", model.rpartition("/")[2]).strip("_").lower()
    return loaded.path.with_name(f"{loaded.name}_on_{slug}.json")


def write_revision(loaded: LoadedSpec, model: str, reason: str) -> Path:
    """Write the revised spec as a new file and return its path.

    Raises:
        SpecError: as :func:`revised_document`, or when the result is no valid spec.
        StoreError: when the file exists already.
    """
    document = revised_document(loaded, model, reason)
    path = default_path(loaded, model)
    parse_spec(document, where=path.name)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_new(path, text.encode())
    return path
