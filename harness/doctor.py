"""``python -m harness doctor [SPEC]``: is this machine ready? One line a check, and what to do.

Values of variables are never read into a line: only whether they are set.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from harness.digest import parse_json, sha256_file
from harness.errors import HarnessError
from harness.health import require_health
from harness.local_service.smollm import SMOLLM, smollm_path
from harness.pins import pin_obstacles
from harness.problems import EMBEDDED_PREFIX, load_problems
from harness.proxy_headers import headers_sent
from harness.sdk_generation import SDK_PACKAGE, constraints_name
from harness.service_access import EMBEDDED, MODEL_DIR, choose_service, service_address
from harness.service_profiles import PROFILES, ServiceProfile, profile_named
from harness.spec import LoadedSpec, load_spec

Word = Literal["ok", "warn", "fail", "unknown"]
OLDEST_PYTHON = (3, 11)
NEEDED_BYTES = 200_000_000
"""A run on the embedded service leaves 12 MB, its checkpoints and pilot as much again."""
COMFORTABLE_BYTES = 2_000_000_000
THREAD_VARIABLES = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its word, what was found, and what to do where it is not ok."""

    word: Word
    name: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        todo = f" | do: {self.fix}" if self.fix and self.word != "ok" else ""
        return f"{self.word:8} {self.name}: {self.found}{todo}"


def examine(
    root: Path,
    spec_path: Path,
    artifacts: Path,
    *,
    service: str | None,
    gsm8k_dir: Path | None,
    environment: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield one finding a check.

    Args:
        root: the project's root, with its constraints files.
        spec_path: the spec to be run.
        artifacts: where records would go.
        service: ``--service``, or None for the spec's own.
        gsm8k_dir: folder of offline rows.
        environment: the process's variables.
    """
    yield python_check(sys.version_info[:3])
    pinned = root / constraints_name(_installed(SDK_PACKAGE))
    yield packages_check(pinned.read_text(encoding="utf-8"), _installed)
    yield threads_check(environment)
    yield disk_check(artifacts)
    yield variables_check(environment)
    try:
        loaded = load_spec(spec_path)
    except HarnessError as error:
        yield Finding("fail", "spec", str(error).replace("\n", " "), "correct the spec")
        return
    yield Finding("ok", "spec", f"{loaded.name} is valid, digest {loaded.digest[:12]}")
    yield pins_check(loaded, root)
    yield rows_check(loaded, gsm8k_dir)
    yield from service_checks(loaded, service, environment)


def python_check(version: tuple[int, ...]) -> Finding:
    """Judge the interpreter."""
    found = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Finding("fail", "python", found, "use Python 3.11 or newer: make PYTHON=python3.11")
    return Finding("ok", "python", found)


def packages_check(constraints: str, installed: Callable[[str], str | None]) -> Finding:
    """Compare installed versions with the pinned ones; a local build tag such as +cpu is the same.

    Args:
        constraints: text of ``constraints.txt``.
        installed: returns a package's version, or None.
    """
    lines = [line.split("#")[0].strip() for line in constraints.splitlines()]
    pinned = dict(line.split("==", 1) for line in lines if "==" in line)
    found = {name: installed(name) for name in pinned}
    missing = [name for name, version in found.items() if version is None]
    other = [
        f"{name} {version} instead of {pinned[name]}"
        for name, version in found.items()
        if version is not None and version.split("+")[0] != pinned[name].split("+")[0]
    ]
    if missing:
        return Finding("fail", "packages", f"missing: {_few(missing)}", "make test sets them up")
    if other:
        fix = "install the pinned versions (make), or prove the gates again with these"
        return Finding("warn", "packages", _few(other), fix)
    return Finding("ok", "packages", f"all {len(pinned)} as pinned")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def threads_check(environment: Mapping[str, str]) -> Finding:
    """Say whether the thread pools are held to one thread, as make does."""
    other = [name for name, value in THREAD_VARIABLES.items() if environment.get(name) != value]
    if other:
        exports = " ".join(f"{name}={THREAD_VARIABLES[name]}" for name in other)
        return Finding("warn", "threads", "default thread pools: slow", f"export {exports}")
    return Finding("ok", "threads", "one thread a process")


def disk_check(artifacts: Path) -> Finding:
    """Judge free space and the right to write where records would go."""
    whole = artifacts.absolute()
    place = next(path for path in (whole, *whole.parents) if path.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free for {artifacts.name}"
    if not place.is_dir() or not os.access(place, os.W_OK):
        fix = "choose another folder with --artifacts DIR"
        return Finding("fail", "disk", f"{artifacts.name} is not writable", fix)
    if free < NEEDED_BYTES:
        return Finding("fail", "disk", found, "make room: a run leaves some 25 MB, set-up 2 GB")
    word: Word = "ok" if free >= COMFORTABLE_BYTES else "warn"
    return Finding(word, "disk", found, "make room: set-up takes 2 GB")


def variables_check(environment: Mapping[str, str]) -> Finding:
    """Say which of the service's variables are set; their values are nobody's business."""
    names = dict.fromkeys(name for profile in PROFILES.values() for name in profile.needed)
    said = ", ".join(f"{name} {'set' if environment.get(name) else 'not set'}" for name in names)
    return Finding("ok", "variables", said)


def pins_check(loaded: LoadedSpec, root: Path) -> Finding:
    """Judge whether the recorded revisions are those of the code."""
    try:
        obstacles = pin_obstacles(loaded.spec, loaded.pins, root)
    except HarnessError as error:
        return Finding("fail", "pins", str(error))
    if obstacles:
        return Finding("fail", "pins", "; ".join(obstacles), f"python -m harness pin {loaded.path}")
    return Finding("ok", "pins", "the recorded revisions are the code's")


def rows_check(loaded: LoadedSpec, gsm8k_dir: Path | None) -> Finding:
    """Judge the data set where that needs no network."""
    spec = loaded.spec
    if gsm8k_dir is None and not spec.dataset.hf_path.startswith(EMBEDDED_PREFIX):
        return Finding(
            "unknown", "rows", "they come from the hub and were not fetched", "--gsm8k-dir DIR"
        )
    try:
        train, test = (load_problems(spec, split, gsm8k_dir) for split in ("train", "test"))
    except HarnessError as error:
        return Finding("fail", "rows", str(error))
    return Finding(
        "ok", "rows", f"{len(train.problems)} train rows, {len(test.problems)} test rows"
    )


def service_checks(
    loaded: LoadedSpec, asked: str | None, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Check the embedded service's files and the loopback, or a service that variables name."""
    try:
        name = choose_service(asked, loaded.spec)
    except HarnessError as error:
        yield Finding("fail", "service", str(error))
        return
    profile = profile_named(name)
    yield sdk_check(profile, _installed(SDK_PACKAGE))
    yield from rank_check(profile, loaded)
    if name == EMBEDDED:
        yield model_check(loaded, MODEL_DIR)
        yield loopback_check()
    named = profile_named("url") if name == EMBEDDED else profile
    missing = named.missing(environment)
    if not missing:
        address = service_address(named.name, environment)
        with headers_sent(address, named.header_values(environment)):
            yield _health_check(address, is_used=name != EMBEDDED)
    elif name != EMBEDDED:
        fix = "set them; specs/local.json needs none"
        yield Finding("fail", "service", f"not set: {', '.join(missing)}", fix)


def sdk_check(profile: ServiceProfile, version: str | None) -> Finding:
    """Say whether the installed SDK is one that the service is known for."""
    if profile.sdk is None:
        said = f"{version}; nothing is known of {profile.name}'s range"
        return Finding("ok", "sdk", said)
    if version is not None and profile.sdk.holds(version):
        return Finding("ok", "sdk", f"{version}, {profile.name} is known for {profile.sdk}")
    found = f"{SDK_PACKAGE} {version}, but {profile.name} is known for {profile.sdk}"
    return Finding("warn", "sdk", found, "make SDK=0.33 …, or see what the live gates measure")


def rank_check(profile: ServiceProfile, loaded: LoadedSpec) -> Iterator[Finding]:
    """Say so when the spec asks for a higher rank than the service is known to offer."""
    limit, rank = profile.max_lora_rank, loaded.spec.lora_rank
    if limit is not None and rank > limit:
        found = f"{rank}, but {profile.name} is known to offer at most {limit}"
        yield Finding("warn", "lora rank", found, "write a revised spec, or ask its operator")


def model_check(loaded: LoadedSpec, folder: Path) -> Finding:
    """Compare the embedded model's and tokenizer's bytes with the record and with the spec."""
    if loaded.spec.base_model == SMOLLM:
        return smollm_check(loaded)
    fix = "restore harness/local_service/model, or run make local-model"
    try:
        record = parse_json((folder / "recipe.json").read_bytes(), where="recipe.json")
        recorded: Mapping[str, str] = record["sha256"]
        found = {name: sha256_file(folder / name) for name in recorded}
    except (OSError, HarnessError, LookupError, TypeError) as error:
        return Finding("fail", "model", f"{type(error).__name__}: {error}", fix)
    changed = [name for name, digest in found.items() if digest != recorded[name]]
    if changed:
        return Finding("fail", "model", f"not as recorded: {_few(changed)}", fix)
    planned = None if loaded.spec.embedded is None else loaded.spec.embedded.base_model_sha256
    if found.get("model.safetensors") != planned:
        return Finding("fail", "model", "not the one that the spec was written for", fix)
    return Finding("ok", "model", f"model and tokenizer: {len(found)} files as recorded")


def smollm_check(loaded: LoadedSpec) -> Finding:
    """Compare the installed SmolLM2 weights with the spec."""
    try:
        found = sha256_file(smollm_path())
    except HarnessError as error:
        return Finding("fail", "model", str(error), "make smollm")
    planned = None if loaded.spec.embedded is None else loaded.spec.embedded.base_model_sha256
    if found != planned:
        return Finding("fail", "model", "not the one that the spec was written for", "make smollm")
    return Finding("ok", "model", f"{SMOLLM}: weights as the spec says")


def loopback_check() -> Finding:
    """Bind a free port on loopback and let it go."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
    except OSError as error:
        fix = "allow sockets on 127.0.0.1: the embedded service listens there"
        return Finding("fail", "loopback", str(error.strerror), fix)
    return Finding("ok", "loopback", "a port on 127.0.0.1 can be bound")


def _health_check(base_url: str, *, is_used: bool) -> Finding:
    try:
        require_health(base_url)
    except HarnessError as error:
        word: Word = "fail" if is_used else "warn"
        why = "" if is_used else " (this spec does not use it)"
        return Finding(word, "service", f"{error.problem}: {error.found}{why}", error.fix)
    return Finding("ok", "service", "TINKER_BASE_URL answers")


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def exit_code(findings: list[Finding]) -> int:
    """Return 1 when something is wrong, 3 when something could not be checked, else 0."""
    words = {finding.word for finding in findings}
    return 1 if "fail" in words else 3 if "unknown" in words else 0


def closing_line(findings: list[Finding]) -> str:
    """Return how many checks ended with which word."""
    words: tuple[Word, ...] = ("ok", "warn", "fail", "unknown")
    counts = ", ".join(f"{sum(f.word == word for f in findings)} {word}" for word in words)
    return f"{len(findings)} checks: {counts}"
