"""What a stage imports only while it runs: loaded once, before stages are forked.

``pyqwest`` is left out: it is native code with threads of its own, which no fork takes along.
"""

from __future__ import annotations

import importlib
import pkgutil

import tinker.resources
import tinker_cookbook.renderers

NAMES = ["anyio._backends._asyncio", "opentelemetry.propagate"]
for package in (tinker.resources, tinker_cookbook.renderers):
    found = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    NAMES += [module.name for module in found if not module.name.endswith("_test")]
for name in NAMES:
    importlib.import_module(name)
