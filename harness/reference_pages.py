"""``docs/spec.md`` and ``docs/gates.md``, generated from the models and the catalogue.

The second also names planted defects, which belong to the tests, so that both are written by
``python -m tests.reference_pages``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from harness.gates.catalog import CATALOG, GateEntry
from harness.spec_meanings import MEANINGS
from harness.spec_model import ExperimentSpec

RENEW = "python -m tests.reference_pages"
_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "pattern": "`{}`",
}
_LARGEST_INTEGER = 2**63
Defects = Mapping[str, Sequence[tuple[str, str]]]
"""Gate id → names and effects of the planted defects that it must catch."""


def spec_page() -> str:
    """Return docs/spec.md."""
    schema = ExperimentSpec.model_json_schema()
    sections: dict[str, Any] = {"ExperimentSpec": schema, **schema["$defs"]}
    lines = [
        "# The experiment spec, field by field",
        "",
        f"Generated from harness/spec_model.py; renew with `{RENEW}`.",
        "One strict JSON file under `specs/`: no duplicate key, no NaN. A field that is unknown is",
        "kept and named in a note; one without a default is required. Rules that span fields are",
        "checked by",
        "`python -m harness spec FILE`, which says what is wrong, where, and what is allowed.",
        "`python -m harness template` prints a spec to start from.",
    ]
    for name, section in sections.items():
        lines += ["", f"## {name}", "", *_table(name, section)]
    return "\n".join(lines) + "\n"


def _table(model: str, section: Mapping[str, Any]) -> Iterator[str]:
    yield "| field | allowed | default | meaning |"
    yield "|---|---|---|---|"
    required = section.get("required", [])
    for field, about in section["properties"].items():
        default = "required" if field in required else _default(about)
        meaning = MEANINGS[f"{model}.{field}"]
        yield f"| `{field}` | {_allowed(about)} | {default} | {meaning} |"


def _default(about: Mapping[str, Any]) -> str:
    value = about.get("default")
    if isinstance(value, dict):
        return "its own defaults"
    return (
        {None: "absent", "": '""'}.get(value, f"{value}") if not isinstance(value, list) else "[]"
    )


def _allowed(about: Mapping[str, Any]) -> str:
    """Return a JSON Schema property in words."""
    if "anyOf" in about:
        return " or ".join(_allowed(option) for option in about["anyOf"])
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in about or "const" in about:
        return ", ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    kind = str(about.get("type", "anything"))
    if kind == "array":
        inner = about.get("items") or (about.get("prefixItems") or [{}])[0]
        size = f", {about['maxItems']} of them" if "maxItems" in about else ""
        kind = f"array of {_allowed(inner)}{size}"
    limits = [
        text.format(about[name])
        for name, text in _LIMITS.items()
        if name in about and about[name] != _LARGEST_INTEGER and "prefixItems" not in about
    ]
    return ", ".join([kind, *limits]).replace("|", "\\|")


def gates_page(defects: Defects) -> str:
    """Return docs/gates.md."""
    lines = [
        "# The gates",
        "",
        f"Generated from harness/gates/catalog.py and the planted defects; renew with `{RENEW}`.",
        "An arm trains only when every gate that its spec requires is proven under the present",
        "content. What a gate measured and what it allowed is in its evidence, one rule with each",
        "number: `artifacts/gates/<spec>/`, and in a run's own `gates/`. The allowed ranges come",
        "from the spec where it has them (activation, tolerances, budget).",
    ]
    for entry in CATALOG:
        lines += ["", *_gate(entry, defects.get(entry.gate_id, ()))]
    others = sorted(set(defects) - {entry.gate_id for entry in CATALOG})
    lines += ["", "## Other guards", ""]
    lines += ["Planted defects that something other than a gate must catch:", ""]
    for guard in others:
        lines += [f"- {guard}: {len(defects[guard])} defects"]
    return "\n".join(lines) + "\n"


def _gate(entry: GateEntry, defects: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"## {entry.gate_id}"
    yield ""
    yield f"- stands for: {entry.clause}"
    yield f"- proves: {entry.proves}"
    yield f"- required by: {_required_by(entry)}"
    needs = "the service; counts for 24 hours" if entry.live else "nothing; runs offline"
    yield f"- needs: {needs}"
    yield f"- measure it: `pytest -m preflight -k {entry.gate_id}`"
    if not defects:
        yield "- planted defects it must catch: none of its own"
        return
    yield f"- planted defects it must catch ({len(defects)}):"
    for name, effect in sorted(defects):
        yield f"  - `{name}`: {effect}"


def _required_by(entry: GateEntry) -> str:
    about = (entry.required.__doc__ or "").strip().rstrip(".")
    return about[:1].lower() + about[1:]


def missing_meanings() -> list[str]:
    """Return fields without a meaning, and meanings without a field; empty when all fit."""
    found = {f"{model.__name__}.{name}" for model in _models() for name in model.model_fields}
    return sorted(found ^ MEANINGS.keys())


def _models() -> Iterator[type[BaseModel]]:
    import harness.spec_model
    import harness.spec_preflight
    import harness.spec_revision
    from harness.spec_part import SpecPart

    for module in (harness.spec_model, harness.spec_preflight, harness.spec_revision):
        for value in vars(module).values():
            is_model = isinstance(value, type) and issubclass(value, SpecPart)
            if is_model and value is not SpecPart and value.__module__ == module.__name__:
                yield value
