"""The pytest command that a message tells a person to run next, with this session's options."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness.session_options import DEFAULT_ARTIFACTS, DEFAULT_SPEC, Options


def next_command(options: Options, what: str) -> str:
    """Return ``pytest WHAT`` with every option that is not the default, ready to be pasted.

    Args:
        options: the session's options.
        what: marks and selections, such as ``-m preflight``.
    """
    root = options.root
    words = ["pytest", what]
    for name, path, default in (
        ("--spec", options.spec_path, DEFAULT_SPEC),
        ("--artifacts", options.artifacts, DEFAULT_ARTIFACTS),
        ("--gsm8k-dir", options.gsm8k_dir, None),
    ):
        if path is not None and (given := _inside(root, path)) != default:
            # One word: pytest takes a path that follows an option for the place of its tests.
            words.append(f"{name}={shlex.quote(given)}")
    return " ".join([*words, *([f"--service={options.service}"] if options.service else [])])


def _inside(root: Path, path: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
