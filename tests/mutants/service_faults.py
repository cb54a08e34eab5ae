"""An embedded service with one planted fault: ``python -m tests.mutants.service_faults``.

The variable HARNESS_SERVICE_FAULT names the fault; everything else is ``harness.local_service``'s
own main. A fault replaces functions of the service before it starts. To add one, write a function
of less than 20 lines under ``@fault(gate_id, effect)`` in one of the modules imported here.
"""

from __future__ import annotations

import os
import sys

from harness.local_service import __main__ as service_main
from tests.mutants import sampling_faults, training_faults
from tests.mutants.fault_registry import FAULTS, Fault

__all__ = ["FAULTS", "FAULT_VARIABLE", "Fault", "main", "sampling_faults", "training_faults"]

FAULT_VARIABLE = "HARNESS_SERVICE_FAULT"


def main() -> int:
    """Plant the fault that the variable names and run the service."""
    FAULTS[os.environ[FAULT_VARIABLE]].patch()
    return service_main.main()


if __name__ == "__main__":
    sys.exit(main())
