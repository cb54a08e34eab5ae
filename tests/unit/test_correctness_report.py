"""The judgement of a correctness record (contract §4)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from preflight_record import NAMES, PINS, record, spec_path, with_errors

from harness.correctness import parity_errors
from harness.correctness_report import Status, judge, read_planned, read_record
from harness.errors import DocumentError, HarnessError

__all__ = ["spec_path"]


def status(spec_path: Path, document: Any) -> Status:
    path = spec_path.with_name("preflight.json")
    path.write_text(json.dumps(document))
    return judge(read_planned(spec_path), read_record(path)).status


def edit_spec(spec_path: Path, **section: Any) -> None:
    document = json.loads(spec_path.read_text())
    document["correctness_preflight"] |= section
    spec_path.write_text(json.dumps(document))


def test_parity_under_the_pinned_revisions_passes(spec_path: Path) -> None:
    assert status(spec_path, record()) is Status.PASSED


# Saved tolerances: baseline_loss atol 1e-6, rtol 1e-6; baseline_gradient rtol 1e-5, cosine 0.99999.
@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("baseline_loss", {"max_abs_error": 3e-6}, Status.PASSED),
        ("baseline_loss", {"max_abs_error": 3.01e-6}, Status.FAILED),
        ("baseline_loss", {"cosine_similarity": -1.0}, Status.PASSED),
        ("baseline_gradient", {"max_abs_error": 2.1e-5}, Status.PASSED),
        ("baseline_gradient", {"max_abs_error": 2.11e-5}, Status.FAILED),
        ("baseline_gradient", {"cosine_similarity": 0.99999}, Status.PASSED),
        ("baseline_gradient", {"cosine_similarity": 0.999989}, Status.FAILED),
        ("reference_gradient", {"max_abs_error": 2.1e-4}, Status.PASSED),
        ("reference_gradient", {"max_abs_error": 2.2e-4}, Status.FAILED),
        ("reference_loss", {"relative_l2_error": 9.0}, Status.PASSED),
    ],
)
def test_the_specs_tolerances_decide(
    name: str, row: dict[str, float], expected: Status, spec_path: Path
) -> None:
    assert status(spec_path, with_errors(name, **row)) is expected


@pytest.mark.parametrize("name", NAMES)
def test_an_error_that_was_not_measured_is_missing(name: str, spec_path: Path) -> None:
    document = record()
    del document["paths"][0]["errors"][name]
    assert status(spec_path, document) is Status.MISSING


def test_a_path_that_was_not_measured_is_missing(spec_path: Path) -> None:
    assert status(spec_path, {"required": True, "paths": []}) is Status.MISSING
    assert status(spec_path, record(id="another_path")) is Status.MISSING


def test_a_failure_outweighs_what_is_missing(spec_path: Path) -> None:
    document = with_errors("baseline_loss", max_abs_error=1.0)
    del document["paths"][0]["errors"]["reference_loss"]
    assert status(spec_path, document) is Status.FAILED


@pytest.mark.parametrize("revision", sorted(PINS))
def test_another_revision_than_the_pinned_one_fails(revision: str, spec_path: Path) -> None:
    assert status(spec_path, record(**{revision: "another"})) is Status.FAILED


@pytest.mark.parametrize("revision", sorted(PINS))
def test_a_measurement_under_an_open_revision_is_unresolved(revision: str, spec_path: Path) -> None:
    assert status(spec_path, record(**{revision: "UNRESOLVED: later"})) is Status.UNRESOLVED


@pytest.mark.parametrize("revision", ["baseline_revision", "reference_revision"])
def test_without_a_pin_the_preflight_is_unresolved_even_if_it_failed(
    revision: str, spec_path: Path
) -> None:
    spec_path.with_name("trial.pins.json").write_text(json.dumps(PINS | {revision: "UNRESOLVED"}))
    assert status(spec_path, record()) is Status.UNRESOLVED
    failed = with_errors("baseline_loss", max_abs_error=1.0)
    assert status(spec_path, failed) is Status.UNRESOLVED


def test_the_saved_spec_without_pins_is_unresolved(spec_path: Path) -> None:
    spec_path.with_name("trial.pins.json").unlink()
    assert status(spec_path, record()) is Status.UNRESOLVED


@pytest.mark.parametrize(
    "claim",
    [{"passed": True}, {"status": "passed"}, {"tolerances": {"baseline_loss": {"atol": 9}}}],
)
def test_what_a_record_says_of_itself_decides_nothing(
    claim: dict[str, Any], spec_path: Path
) -> None:
    document = with_errors("baseline_loss", max_abs_error=1.0)
    document |= claim
    document["paths"][0] |= claim
    document["paths"][0]["errors"]["baseline_loss"] |= claim
    assert status(spec_path, document) is Status.FAILED


def test_a_record_that_says_parity_is_not_required_is_judged_all_the_same(spec_path: Path) -> None:
    assert status(spec_path, {"required": False, "paths": []}) is Status.MISSING


def test_stock_only_work_needs_no_parity(spec_path: Path) -> None:
    document = json.loads(spec_path.read_text())
    document["correctness_preflight"] = {"required": False, "paths": []}
    document["experiment_features"]["custom_loss"] = False
    spec_path.write_text(json.dumps(document))
    nothing = {"required": False, "paths": []}
    assert status(spec_path, nothing) is Status.NOT_APPLICABLE
    document["experiment_features"]["custom_loss"] = True
    spec_path.write_text(json.dumps(document))
    assert status(spec_path, nothing) is Status.MISSING


def scaled(spec_path: Path, tolerance: float) -> None:
    paths = json.loads(spec_path.read_text())["correctness_preflight"]["paths"]
    paths[0]["tolerances"]["lr_scaling"] = tolerance
    edit_spec(spec_path, paths=paths)


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        (None, Status.MISSING),
        ([], Status.MISSING),
        ([1.0, 2.02], Status.PASSED),
        ([1.0, 2.04], Status.FAILED),
        ([0.0, 0.0], Status.FAILED),
        ([1.0], Status.FAILED),
    ],
)
def test_learning_rate_scaling_where_the_spec_asks_for_it(
    norms: list[float] | None, expected: Status, spec_path: Path
) -> None:
    scaled(spec_path, 0.015)
    rates = (1e-3, 2e-3)
    found = (
        None
        if norms is None
        else [
            {"learning_rate": rate, "update_norm": norm}
            for rate, norm in zip(rates, norms, strict=False)
        ]
    )
    assert status(spec_path, record(lr_scaling=found)) is expected


def test_an_optimizer_path_is_judged_by_its_updates(spec_path: Path) -> None:
    paths = json.loads(spec_path.read_text())["correctness_preflight"]["paths"]
    tolerance = {"atol": 1e-6, "rtol": 0.0}
    optimizer = paths[0] | {
        "id": "advantage_loss",
        "kind": "optimizer",
        "tolerances": {"baseline_update": tolerance, "reference_update": tolerance},
    }
    edit_spec(spec_path, paths=[optimizer])
    assert status(spec_path, record()) is Status.MISSING
    rows = {f"{side}_update": parity_errors([1.0], [1.0]) for side in ("baseline", "reference")}
    assert status(spec_path, record(errors=rows)) is Status.PASSED


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(record())
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("paths", 0, "errors", "baseline_loss", "max_abs_error"), -1.0),
        (("paths", 0, "errors", "baseline_loss", "max_abs_error"), "0"),
        (("paths", 0, "errors", "baseline_loss", "max_abs_error"), None),
        (("paths", 0, "errors", "baseline_loss", "cosine_similarity"), 1.5),
        (("paths", 0, "fixed_input", "sha256"), "A" * 64),
        (("paths", 0, "precision"), ""),
        (("required",), "yes"),
        (("paths",), {}),
    ],
)
def test_a_record_of_another_shape_is_unreadable(
    path: tuple[Any, ...], value: Any, spec_path: Path
) -> None:
    with pytest.raises(DocumentError):
        status(spec_path, changed(path, value))


def test_a_path_recorded_twice_is_unreadable(spec_path: Path) -> None:
    document = record()
    document["paths"] *= 2
    with pytest.raises(DocumentError, match="twice"):
        status(spec_path, document)


def test_a_spec_without_a_tolerance_cannot_judge(spec_path: Path) -> None:
    paths = json.loads(spec_path.read_text())["correctness_preflight"]["paths"]
    del paths[0]["tolerances"]["reference_gradient"]
    edit_spec(spec_path, paths=paths)
    with pytest.raises(HarnessError, match="reference_gradient"):
        status(spec_path, record())
