"""The services that ``--service`` may name, as data: what each needs and what is known of it.

What is said here was read, not measured (``docs/services.md``); the gates measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.errors import UsageError

BASE_URL_VARIABLE = "TINKER_BASE_URL"
KEY_VARIABLE = "TINKER_API_KEY"
PROFILE_VARIABLE = "HARNESS_SERVICE"
"""Names the profile, in the environment of a stage's process."""

Version = tuple[int, ...]


@dataclass(frozen=True)
class SdkRange:
    """Releases of the SDK that a service is known to answer, both ends included."""

    first: str
    last: str

    def holds(self, version: str) -> bool:
        """Return whether a release lies inside; an end without a patch number means all of them."""
        found = parse_release(version)
        first, last = parse_release(self.first), parse_release(self.last)
        return found[: len(first)] >= first and found[: len(last)] <= last

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


@dataclass(frozen=True)
class BudgetFacts:
    """What may be said of a run's cost on a service (contract §6).

    Attributes:
        gpu_count: GPUs that are the run's own; None without evidence of an allocation.
        allocation_source: where that is known from; None with None.
        note: what else counts, for a person.
    """

    gpu_count: int | None
    allocation_source: str | None
    note: str

    def allocation(self) -> dict[str, int | str | None]:
        """Return the two fields of a measurement's allocation."""
        return {"gpu_count": self.gpu_count, "allocation_source": self.allocation_source}


@dataclass(frozen=True)
class ServiceProfile:
    """One kind of service.

    Attributes:
        name: what ``--service`` calls it.
        variables: environment variables without which it cannot be used.
        headers: HTTP header → the variable that holds its value; sent with every request.
        health_path: what answers a sign of life, under ``/api/v1/``.
        sdk: releases it is known for; None when nothing is known.
        max_lora_rank: highest rank it offers; None when nothing is known.
        budget: facts about cost.
    """

    name: str
    variables: tuple[str, ...]
    budget: BudgetFacts
    headers: Mapping[str, str] = field(default_factory=dict)
    health_path: str = "healthz"
    sdk: SdkRange | None = None
    max_lora_rank: int | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Every variable that must be set, the headers' included."""
        return (*self.variables, *self.headers.values())

    def missing(self, environ: Mapping[str, str]) -> list[str]:
        """Return the needed variables that are not set; an empty one counts as not set."""
        return [name for name in self.needed if not environ.get(name)]

    def header_values(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return header → value.

        Raises:
            UsageError: naming the variables that are not set.
        """
        if absent := [name for name in self.headers.values() if not environ.get(name)]:
            raise missing_error(self, absent)
        return {header: environ[name] for header, name in self.headers.items()}


def missing_error(profile: ServiceProfile, absent: list[str]) -> UsageError:
    """Return the error for variables that are not set; it names them and no value."""
    return UsageError(
        "the service's variables are not set",
        expected=" and ".join(profile.needed),
        found=f"missing: {', '.join(absent)}",
        where=f"environment, for --service {profile.name}",
        fix="set them, or use specs/local.json, which needs none",
    )


def parse_release(version: str) -> Version:
    """Return a release as numbers: "0.33.1" is (0, 33, 1); what follows them is left out."""
    numbers: list[int] = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


_BOTH = (BASE_URL_VARIABLE, KEY_VARIABLE)
_SPINDLE_SDK = SdkRange("0.25", "0.33")
_SHARED = "a shared service shows no allocation of GPUs: GPU-hours stay unknown, never 0"
_SPINDLE_RANK = 32

PROFILES: Mapping[str, ServiceProfile] = {
    profile.name: profile
    for profile in (
        ServiceProfile(
            "embedded",
            (),
            BudgetFacts(
                0,
                "the embedded service and the harness compute on the CPU only",
                "CPU seconds only",
            ),
            sdk=SdkRange("0.33", "0.38"),
        ),
        ServiceProfile(
            "spindle",
            _BOTH,
            BudgetFacts(None, None, _SHARED),
            headers={
                "Modal-Key": "MODAL_PROXY_TOKEN_ID",
                "Modal-Secret": "MODAL_PROXY_TOKEN_SECRET",
            },
            sdk=_SPINDLE_SDK,
            max_lora_rank=_SPINDLE_RANK,
        ),
        ServiceProfile(
            "fork",
            _BOTH,
            BudgetFacts(
                None,
                None,
                "a fork's GPUs are the run's own: its deployment time is set-up, and they cost"
                " until it is stopped (python -m harness cleanup)",
            ),
            headers={
                "Modal-Key": "RUNS_PROXY_TOKEN_ID",
                "Modal-Secret": "RUNS_PROXY_TOKEN_SECRET",
            },
            sdk=_SPINDLE_SDK,
            max_lora_rank=_SPINDLE_RANK,
        ),
        ServiceProfile(
            "tinker",
            (KEY_VARIABLE,),
            BudgetFacts(None, None, f"billed by tokens; {_SHARED}"),
        ),
        ServiceProfile("url", _BOTH, BudgetFacts(None, None, _SHARED)),
    )
}
"""By name. The fork's proxy has tokens of its own: the shared service's do not open it."""


def profile_named(name: str) -> ServiceProfile:
    """Return a profile.

    Raises:
        UsageError: for a name that is none.
    """
    if name not in PROFILES:
        raise UsageError(
            "the service is not known",
            expected=" or ".join(PROFILES),
            found=name,
            where="--service",
            fix="leave --service out: the spec knows its service",
        )
    return PROFILES[name]
