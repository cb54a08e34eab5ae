"""Names of the files at the top of a run's folder, for readers that need nothing else of a run."""

from __future__ import annotations

PLAN_NAME = "plan.json"
SPEC_COPY_NAME = "spec.json"
RESULT_NAME = "result.json"
HTML_NAME = "report.html"
INITIAL_NAME = "initial.json"
INITIAL_ADAPTER = "initial_adapter"
GATES_FOLDER = "gates"
"""Where a run keeps the evidence of the gates it relied on."""
