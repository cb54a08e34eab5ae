"""Speed, memory and growth: measured on demand by ``make bench``, never by a timed test."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Stand-ins for service and run that the tests use too; their folder is no package.
for folder in (ROOT, ROOT / "tests" / "unit"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
