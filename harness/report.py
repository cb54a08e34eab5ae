"""The report of a run: ``report.json``, and ``report.md`` and ``report.html`` rendered from it.

Every number comes from the run's own files, so that the same files give the same bytes: no time
of drawing, no name of a machine, no order of a dictionary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import DocumentError
from harness.redact import Redactor
from harness.report_change import change
from harness.report_costs import commands, deviations, feasibility, provenance
from harness.report_examples import examples
from harness.report_model import Report
from harness.report_source import Source, read_source, well_formed, without_paths
from harness.report_training import gates, mutants, training
from harness.report_verdict import criteria, incomplete, scores, verdict
from harness.run_files import HTML_NAME as HTML_NAME

JSON_NAME, MARKDOWN_NAME = "report.json", "report.md"
REPORT_NAMES = (JSON_NAME, MARKDOWN_NAME, HTML_NAME)


def build_report(folder: Path, gsm8k_dir: Path | None, redactor: Redactor) -> Report:
    """Return the report of a run as it stands, finished or not.

    Args:
        folder: the run's folder.
        gsm8k_dir: offline rows of the data set, where the run used them.
        redactor: takes secrets out of every text.

    Raises:
        HarnessError: when a record of the run is damaged.
        OSError: when the run has no result document.
    """
    source = read_source(folder, gsm8k_dir, redactor)
    decided = criteria(source)
    sections = {
        "version": 1,
        "run": source.run.plan["run"],
        "spec": source.run.plan["spec"],
        "title": source.run.spec.title,
        "verdict": verdict(source).model_dump(),
        "criteria": [item.model_dump() for item in decided],
        "incomplete": incomplete(source),
        "scores": [item.model_dump() for item in scores(source)],
        "training": [item.model_dump() for item in training(source)],
        "gates": [item.model_dump() for item in gates(source)],
        "mutants": found.model_dump() if (found := mutants(source)) else None,
        "change": [item.model_dump() for item in change(source, decided)],
        "deviations": [item.model_dump() for item in deviations(source)],
        "feasibility": feasibility(source).model_dump(),
        "provenance": [item.model_dump() for item in provenance(source)],
        "commands": [item.model_dump() for item in commands(source)],
    }
    shown = _without_paths(redactor.redact_json(sections), source)
    # Examples are the run's own texts: they are shown as they are, but for secrets.
    return parse_report({**shown, "examples": examples(source).model_dump()})


def _without_paths(value: Any, source: Source) -> Any:
    if isinstance(value, str):
        return source.shown(without_paths(value))
    if isinstance(value, dict):
        return {key: _without_paths(item, source) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item, source) for item in value]
    return value


def parse_report(raw: Any) -> Report:
    """Return the typed report of parsed JSON.

    Raises:
        DocumentError: naming every field that is not the model's.
    """
    try:
        return Report.model_validate(raw)
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise DocumentError(
            "the run's records do not give a report",
            expected="fields of harness/schemas/report.schema.json",
            found=well_formed("; ".join(found[:5])),
            fix="python -m harness verify RUN names the damaged record",
        ) from error


def report_json(report: Report) -> bytes:
    """Return the bytes of ``report.json``: indented, keys sorted."""
    document = report.model_dump(mode="json")
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
