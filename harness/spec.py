"""Loading an experiment spec: one strict JSON file in, one frozen :class:`LoadedSpec` out.

The digest is taken over the document as read, unknown fields included, so that nothing in the
file can change unnoticed. What the file leaves to a default is listed in ``notes``, never silent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.advantage_domain import DOMAINS
from harness.dataset_pin import pin_of
from harness.digest import canonical_json, parse_json, sha256_json
from harness.errors import DocumentError, SpecError, StoreError
from harness.pins import Pins, load_pins, resolve_pins
from harness.reading import read_regular
from harness.record_version import refuse_other_version
from harness.spec_model import Criterion, ExperimentSpec
from harness.spec_part import ABSENT, SpecPart, Violation, shown
from harness.spec_rules import EMBEDDED_ROWS, resolve_roles, violations
from harness.spec_spelling import did_you_mean, misspelt, unknown_fields

__all__ = ["ExperimentSpec", "LoadedSpec", "describe", "load_spec", "parse_spec"]


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec that passed every rule, with what a record of it needs.

    Attributes:
        spec: the typed document.
        path: the file it was read from.
        name: the file's stem, which names the spec's run folders.
        raw: the document as parsed; its canonical form is what ``digest`` covers.
        digest: SHA-256 of ``raw``.
        pins: revisions recorded beside the spec, or None where there is no pins file.
        notes: what a reader should know: kept unknown fields, defaults taken, open revisions.
    """

    spec: ExperimentSpec
    path: Path
    name: str
    raw: dict[str, Any]
    digest: str
    pins: Pins | None
    notes: tuple[str, ...]


def load_spec(path: Path) -> LoadedSpec:
    """Read, check and hash one spec file and its pins.

    Raises:
        SpecError: naming every field that is wrong, its value and what is allowed.
    """
    raw = read_spec_document(path)
    spec = parse_spec(raw, where=str(path))
    pins = load_pins(path)
    return LoadedSpec(
        spec=spec,
        path=path,
        name=path.stem,
        raw=raw,
        digest=sha256_json(raw),
        pins=pins,
        notes=tuple(_notes(spec, pins)),
    )


def parse_spec(raw: Any, *, where: str) -> ExperimentSpec:
    """Return the typed spec of a parsed document.

    Args:
        raw: what strict parsing gave.
        where: the file that messages name.

    Raises:
        SpecError: listing all type errors, or else all broken rules.
    """
    rule = raw.get("decision_rule") if isinstance(raw, dict) else None
    refuse_other_version(rule, "decision rule", where=f"{where}: decision_rule", error=SpecError)
    try:
        spec = ExperimentSpec.model_validate_json(canonical_json(raw))
    except ValidationError as error:
        found = [_violation(detail, raw) for detail in error.errors(include_url=False)]
        raise _refusal(found, where) from error
    # Imported here because the registries load numpy and scikit-learn, which a reader of the
    # models does not need.
    from harness.advantages import MODES
    from harness.similarity import SIMILARITIES

    broken = violations(spec, modes=MODES, similarities=SIMILARITIES)
    if broken:
        raise _refusal(broken, where, misspelt(spec))
    return spec


def describe(loaded: LoadedSpec, gate_ids: Sequence[str]) -> list[str]:
    """Return the lines that ``python -m harness spec`` prints.

    Args:
        loaded: the spec.
        gate_ids: the gates that must pass before an arm may train, as the caller knows them.
    """
    spec = loaded.spec
    roles = resolve_roles(spec)
    return [
        f"spec {loaded.name}: {spec.title}",
        f"digest sha256:{loaded.digest}",
        f"base model {spec.base_model}, LoRA rank {spec.lora_rank}, {spec.optimizer.name} "
        f"lr {spec.optimizer.lr:g}, {spec.steps} steps of {spec.batch_size} rollouts",
        _data_line(spec),
        *_arm_lines(spec),
        f"decision {spec.decision_rule.method}, alpha {spec.decision_rule.alpha:g}, "
        f"seeds {list(spec.decision_rule.seeds)}, n = {spec.eval.n_examples} items, "
        f"treatment {roles.treatment}, baseline {roles.baseline}",
        *(_criterion_line(spec, criterion) for criterion in spec.decision_rule.criteria),
        f"gates required before any arm ({len(gate_ids)}): {', '.join(gate_ids) or 'none'}",
        *(f"note: {note}" for note in loaded.notes),
    ]


def hoeffding_half_width(spec: ExperimentSpec, criterion: Criterion) -> float:
    """Return (hi - lo) * sqrt(ln(2 / alpha) / (2 n)) with n evaluation items (contract §8)."""
    low, high = criterion.effect_range
    n = spec.eval.n_examples
    return (high - low) * math.sqrt(math.log(2 / spec.decision_rule.alpha) / (2 * n))


def _data_line(spec: ExperimentSpec) -> str:
    dataset, pin = spec.dataset, pin_of(spec.dataset)
    if pin is not None and pin.rows_sha256:
        state = f"rows pinned by digest, hub revision {pin.revision or 'none'}"
    elif spec.embedded is not None and dataset.hf_path.startswith(EMBEDDED_ROWS):
        state = f"rows generated from seed {spec.embedded.task_seed}"
    else:
        state = "rows NOT pinned: give dataset.revision and dataset.rows_sha256"
    return f"data {dataset.hf_path}: {dataset.n_examples} train rows, {state}"


def _arm_lines(spec: ExperimentSpec) -> Iterator[str]:
    for arm in spec.arms:
        tau = "" if arm.tau is None else f", tau {arm.tau:g}"
        similarity = "" if arm.similarity is None else f", similarity {arm.similarity}"
        yield (
            f"arm {arm.name}: advantage {arm.advantage_mode}, group size {arm.group_size} × "
            f"{arm.groups_per_batch} groups, seed {arm.seed}{tau}{similarity}"
        )


def _criterion_line(spec: ExperimentSpec, criterion: Criterion) -> str:
    low, high = criterion.effect_range
    half_width = hoeffding_half_width(spec, criterion)
    return (
        f"criterion {criterion.id}: {criterion.metric}, margin {criterion.margin:g}, effect in "
        f"[{low:g}, {high:g}], half-width {half_width:.7f}, passes above a point estimate of "
        f"{criterion.margin + half_width:+.4f}"
    )


def read_spec_document(path: Path) -> dict[str, Any]:
    """Return a spec file's JSON object, unchecked but for strictness.

    Raises:
        SpecError: naming the file, and what is wrong with it.
    """
    try:
        raw = parse_json(read_regular(path, follow=True), where=str(path))
    except DocumentError as error:
        raise SpecError(
            error.problem,
            expected=error.expected,
            found=error.found,
            where=error.where,
            fix=error.fix or "correct the spec",
        ) from error
    except StoreError as error:
        raise SpecError(
            "the spec cannot be read",
            expected="a JSON file",
            found=error.found,
            where=str(path),
            fix="name an existing file, for example specs/local.json",
        ) from error
    if not isinstance(raw, dict):
        raise SpecError("the spec is not a JSON object", found=type(raw).__name__, where=str(path))
    return raw


def _refusal(found: Sequence[Violation], where: str, hints: Sequence[str] = ()) -> SpecError:
    rules = "1 rule" if len(found) == 1 else f"{len(found)} rules"
    lines = "".join(f"\n  {line}" for line in (*found, *hints))
    return SpecError(f"{where}: the spec breaks {rules} of contract §1{lines}")


def _violation(detail: ErrorDetails, raw: Any) -> Violation:
    """Turn one pydantic error into a row; union tags in its location are left out of the path."""
    path = ""
    here = raw
    for key in detail["loc"]:
        if isinstance(key, int) and isinstance(here, list):
            path += f"[{key}]"
        elif isinstance(here, dict) and (key in here or detail["type"] == "missing"):
            path += f".{key}" if path else str(key)
        else:
            continue
        here = _child(here, key)
    value = ABSENT if detail["type"] == "missing" else here
    said = detail["msg"][:1].lower() + detail["msg"][1:]
    if detail["type"] == "missing":
        said += did_you_mean(str(detail["loc"][-1]), _parent(detail["loc"], raw))
    return Violation(path or "$", value, said)


def _parent(loc: Sequence[int | str], raw: Any) -> Any:
    """Return the object that a field is missing from; union tags lead nowhere and are left out."""
    here = raw
    for key in loc[:-1]:
        inside = isinstance(here, dict) and key in here
        here = _child(here, key) if inside or isinstance(here, list) else here
    return here


def _child(container: Any, key: int | str) -> Any:
    if isinstance(container, dict):
        return container.get(str(key))
    return container[key] if isinstance(key, int) and key < len(container) else None


def _notes(spec: ExperimentSpec, pins: Pins | None) -> Iterator[str]:
    for path, value in unknown_fields(spec):
        yield f"unknown field kept: {path} = {shown(value)}"
    yield from misspelt(spec)
    yield from _default_notes(spec)
    yield from _feature_notes(spec)
    yield from _seed_notes(spec)
    for path in resolve_pins(spec, pins):
        if path.status == "unresolved":
            yield f"correctness path {path.path_id} is unresolved: no arm may train until it is"


def _default_notes(spec: ExperimentSpec) -> Iterator[str]:
    parts = (("execution", spec.execution), ("execution.optimizer", spec.execution.optimizer))
    for at, part in parts:
        for name in type(part).model_fields:
            value = getattr(part, name)
            if name not in part.model_fields_set and not isinstance(value, SpecPart):
                yield f"{at}.{name} is absent: the default {shown(value)} is used"


def _feature_notes(spec: ExperimentSpec) -> Iterator[str]:
    features = spec.experiment_features
    unknown = [name for name in type(features).model_fields if getattr(features, name) is None]
    if unknown:
        yield f"experiment_features that the spec does not state are unknown: {', '.join(unknown)}"


def _seed_notes(spec: ExperimentSpec) -> Iterator[str]:
    seeds = spec.decision_rule.seeds
    if len(seeds) > 1:
        yield f"every arm is trained once with each of seeds {list(seeds)}, whatever its own seed"
    for index, arm in enumerate(spec.arms):
        weighs = arm.advantage_mode in DOMAINS and DOMAINS[arm.advantage_mode].weighs_prompts
        if arm.tau is not None and not weighs:
            yield f"arms[{index}].tau = {arm.tau:g} has no effect in mode {arm.advantage_mode}"
