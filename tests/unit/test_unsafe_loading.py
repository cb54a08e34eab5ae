"""No code of the harness turns bytes into running code: no pickle, no exec, no shell.

Whatever it reads may be hostile, and a pickle is a program. Read from the syntax tree, so that a
comment or a text does not count and an alias does not hide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    *("pickle", "_pickle", "cPickle", "marshal", "shelve", "dbm", "dill", "cloudpickle"),
    *("joblib", "runpy", "code", "codeop", "imp", "zipimport", "xmlrpc", "yaml"),
}
"""Modules that run what they read; none has a place here, not even unused."""
BUILTINS = {"exec", "eval", "compile", "__import__"}
ATTRIBUTES = {
    *("torch.load", "torch.hub.load", "torch.jit.load", "torch.package", "torch.save"),
    *("numpy.fromfile", "numpy.lib.format", "pandas.read_pickle", "os.system", "os.popen"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "importlib.import_module"),
    *("builtins.exec", "builtins.eval", "builtins.compile", "builtins.__import__"),
}
FLAGS = {"allow_pickle": False, "shell": False, "trust_remote_code": False, "weights_only": True}
"""Keywords that may only be given as this constant."""
PLAIN_LOADS = {"numpy.load"}
"""May be called only where ``allow_pickle`` is given, as False."""


def unsafe(source: str) -> list[str]:
    """Name every use of what runs bytes, with its line."""
    tree = ast.parse(source)
    names = dict(_imports(tree))
    return sorted({f"line {line}: {what}" for line, what in _uses(tree, names)})


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each imported name and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or whole, whole
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"


def _uses(tree: ast.AST, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in _modules(node):
                if module.partition(".")[0] in MODULES or module in ATTRIBUTES:
                    yield node.lineno, module
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            spelled = _spelled(node, names)
            if spelled in ATTRIBUTES or spelled in BUILTINS:
                yield node.lineno, spelled
        elif isinstance(node, ast.Call):
            for what in _bad_keywords(node, names):
                yield node.lineno, what


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    # A dot in front of a module's name means this package itself.
    start = "." * node.level + (node.module or "")
    return [f"{start}.{alias.name}" for alias in node.names]


def _spelled(node: ast.expr, names: dict[str, str]) -> str:
    """Return an expression's dotted name with its first part as it was imported."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_spelled(node.value, names)}.{node.attr}"
    return "?"


def _bad_keywords(call: ast.Call, names: dict[str, str]) -> Iterator[str]:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    for flag, allowed in FLAGS.items():
        value = given.get(flag)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is allowed):
            yield f"{flag} is not {allowed}"
    called = _spelled(call.func, names)
    if called in PLAIN_LOADS and "allow_pickle" not in given:
        yield f"{called} without allow_pickle=False"


def test_nothing_in_the_harness_runs_what_it_reads() -> None:
    files = sorted((ROOT / "harness").rglob("*.py"))
    assert len(files) >= 150, f"{len(files)} files read: not the whole harness"
    found = {
        path.relative_to(ROOT).as_posix(): uses
        for path in files
        if (uses := unsafe(path.read_text(encoding="utf-8")))
    }
    assert found == {}, f"{len(found)} files can run what they read: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads as quietly",
        "import torch as t\nt.load('x')",
        "from torch import load\nload('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nwild = True\nnp.load('x', allow_pickle=wild)",
        "exec('1')",
        "run = eval",
        "__import__('pickle')",
        "from importlib import import_module\nimport_module('pickle')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from transformers import Auto\nAuto.from_pretrained('m', trust_remote_code=True)",
        "import os\nos.system('ls')",
        "import marshal as m",
        "import os.path, pickle",
    ],
)
def test_each_way_to_run_bytes_is_found(source: str) -> None:
    assert unsafe(source) != [], f"not found in: {source}"


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('x')",
        "model.eval()",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "text = 'pickle.loads'  # exec(eval)",
        "import json\njson.load(stream)",
        "class Spec:\n    eval: int\n    code: str",
        "from . import code",
    ],
)
def test_harmless_code_is_left_alone(source: str) -> None:
    assert unsafe(source) == [], f"a false alarm in: {source}"
