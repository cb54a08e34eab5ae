"""A bundle as an in-toto Statement v1 with the predicate test-result v0.1, unsigned.

Gates are the tests: passed is a pass, failed a fail, and warned a gate that is not proven. The
outcomes are judged again from the recorded measurements, not copied. A statement without an
envelope and a signature authenticates nobody; whoever publishes it signs it.

Source: in-toto attestation framework, ``spec/v1/statement.md``, ``spec/v1/resource_descriptor.md``
and ``spec/predicates/test-result.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.bundle_file import BundledFile
from harness.digest import sha256_file
from harness.gates.verdict import Outcome, combine
from harness.plan import SPEC_COPY_NAME, PlannedRun
from harness.result import ResultDocument
from harness.verify_gates import gate_checks

STATEMENT_NAME = "test-result.statement.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
RESULTS = {Outcome.PASS: "PASSED", Outcome.UNKNOWN: "WARNED", Outcome.FAIL: "FAILED"}
PINS_NAME = "spec.pins.json"
_GATE_PREFIX = "gate "


def statement(
    run: PlannedRun, result: ResultDocument, files: Sequence[BundledFile]
) -> dict[str, Any]:
    """Return the statement: the bundle's files as subject, the run's gates as tests.

    Args:
        run: the run, read back.
        result: its result document.
        files: every file of the bundle.
    """
    outcomes = _gate_outcomes(run, result)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.name, "digest": {"sha256": file.sha256}} for file in files],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": RESULTS[combine(outcomes.values())],
            "configuration": _configuration(run),
            "passedTests": _with(outcomes, Outcome.PASS),
            "warnedTests": _with(outcomes, Outcome.UNKNOWN),
            "failedTests": _with(outcomes, Outcome.FAIL),
        },
    }


def _gate_outcomes(run: PlannedRun, result: ResultDocument) -> dict[str, Outcome]:
    """Return the outcome of every required gate by id, judged from its recorded measurements."""
    return {
        check.name.removeprefix(_GATE_PREFIX): check.outcome
        for check in gate_checks(run, result)
        if check.name.startswith(_GATE_PREFIX)
    }


def _with(outcomes: dict[str, Outcome], wanted: Outcome) -> list[str]:
    return sorted(gate_id for gate_id, outcome in outcomes.items() if outcome is wanted)


def _configuration(run: PlannedRun) -> list[dict[str, Any]]:
    """Describe the spec and its pins by their names in the run and the digests of their bytes."""
    return [
        {
            "name": name,
            "digest": {"sha256": sha256_file(run.folder / name)},
            "mediaType": "application/json",
        }
        for name in (SPEC_COPY_NAME, PINS_NAME)
        if (run.folder / name).is_file()
    ]
