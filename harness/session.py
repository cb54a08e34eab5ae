"""What one pytest session knows: its options, its spec, its gates and its service.

Everything here is plain Python and works without pytest; :mod:`harness.plugin` only connects it to
hooks and fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import ServiceError, UsageError
from harness.gates.binding import Binding, bind, git_state
from harness.gates.catalog import gate_entry, required_gate_ids
from harness.gates.evidence import EvidenceWriter, read_history
from harness.gates.gate_runs import GateRuns
from harness.gates.standing import Standing, standing_of
from harness.gates.verdict import Outcome
from harness.next_command import next_command
from harness.pins import pin_obstacles
from harness.service_access import EMBEDDED, ServiceAccess, choose_service, service_identity
from harness.session_options import DEFAULT_SPEC as DEFAULT_SPEC
from harness.session_options import Options as Options
from harness.spec import LoadedSpec, load_spec
from harness.step_line import ShowStep, plain_line

PACKAGE_ROOT = Path(__file__).parents[1]
"""Where the code that runs is; revisions are pinned against it."""


class HarnessSession:
    """The state of one session.

    Args:
        options: the command line.
        report: shows one line to the person, even while output is captured.
        show_step: shows one training step; by default a plain line of ``report``.
    """

    def __init__(
        self,
        options: Options,
        report: Callable[[str], None] = print,
        show_step: ShowStep | None = None,
    ) -> None:
        if options.parallel < 1:
            raise UsageError(
                "no arm could ever train",
                expected="at least 1",
                found=str(options.parallel),
                where="--parallel",
                fix="leave --parallel out for one arm after another",
            )
        self.options = options
        self.report = report
        self.show_step: ShowStep = show_step or (lambda step: report(plain_line(step)))
        self.loaded: LoadedSpec = load_spec(options.spec_path)
        self.service_name = choose_service(options.service, self.loaded.spec)
        self.gates = GateRuns(self._gates_begun, self.binding, self._spec_option())
        self.refused = ""
        self.blocked: list[str] = []
        self.undecided: list[str] = []
        self.planned_arms: tuple[str, ...] = ()
        self._bound_at_start: Binding | None = None

    @property
    def required(self) -> tuple[str, ...]:
        """Ids of the gates this spec requires."""
        return required_gate_ids(self.loaded.spec)

    @property
    def gates_folder(self) -> Path:
        """Folder of this spec's gate evidence."""
        return self.options.artifacts / "gates" / self.loaded.name

    @cached_property
    def service(self) -> ServiceAccess:
        """The service, started at its first use."""
        folder = self.options.artifacts / "service" / self.loaded.name
        return ServiceAccess(self.service_name, self.loaded.spec, folder)

    @cached_property
    def unreachable(self) -> str:
        """Why a service that is named by its address does not answer, asked once; else ""."""
        if self.service_name == EMBEDDED:
            return ""
        try:
            self.service.environment()
        except ServiceError as error:
            return str(error)
        return ""

    def binding(self) -> Binding:
        """Measure the content that gates are bound to, now."""
        identity = service_identity(self.service_name, self.loaded.spec)
        return bind(self.options.root, self.options.spec_path, identity)

    def begin(self) -> None:
        """Measure the content before any gate's module is read, so that no later edit is unseen."""
        self._bound_at_start = self.binding()

    def _gates_begun(self) -> EvidenceWriter:
        bound = self._bound_at_start or self.binding()
        return EvidenceWriter(
            self.gates_folder, self.loaded.name, bound, git_state(self.options.root)
        )

    def _given_spec(self) -> Path:
        path, root = self.options.spec_path, self.options.root
        return path.relative_to(root) if path.is_relative_to(root) else path

    def _spec_option(self) -> str:
        """Return the option that names the spec in a command, or "" for the default spec."""
        given = self._given_spec().as_posix()
        return "" if given == DEFAULT_SPEC else f"--spec={given}"

    def selected_arms(self) -> tuple[str, ...]:
        """Return the names of the arms that ``--arm`` selects, in the spec's order.

        Raises:
            UsageError: for a word that names no arm and no arm's mode.
        """
        spec = self.loaded.spec
        words = {
            arm.name: {arm.name, spec.arm_of(arm.name), arm.advantage_mode}
            for arm in spec.trainings
        }
        known = set[str]().union(*words.values())
        if unknown := sorted(set(self.options.arms) - known):
            raise UsageError(
                "--arm names no arm of the spec",
                expected=f"one of {sorted(known)}",
                found=", ".join(unknown),
                where=f"--arm, with {self.options.spec_path.name}",
                fix="name an arm or an advantage mode, or leave --arm out for all of them",
            )
        wanted = set(self.options.arms) or known
        return tuple(name for name, called in words.items() if called & wanted)

    def standings(self) -> dict[str, Standing]:
        """Judge every required gate from the files, against the tree as it is now."""
        history, binding = read_history(self.gates_folder), self.binding()
        now = datetime.now(UTC)
        return {
            gate_id: standing_of(gate_entry(gate_id), history, binding, now)
            for gate_id in self.required
        }

    def unproven(self) -> tuple[str, ...]:
        """Return the required gates that the files do not prove now."""
        standings = self.standings().values()
        return tuple(item.gate_id for item in standings if item.outcome is not Outcome.PASS)

    def ran_unproven(self) -> bool:
        """Return whether a gate this session ran does not stand proven now (flaky, edited, …)."""
        if not self.gates.outcomes:
            return False
        standings = self.standings()
        return any(
            standings[gate_id].outcome is not Outcome.PASS
            for gate_id in self.gates.outcomes
            if gate_id in standings
        )

    def failed_offline(self) -> list[str]:
        """Return required offline gates that failed: no service is contacted after that."""
        here = {
            gate_id for gate_id, (outcome, _) in self.gates.outcomes.items() if outcome == "fail"
        }
        before = {
            standing.gate_id
            for standing in self.standings().values()
            if standing.outcome is Outcome.FAIL
        }
        offline = [gate_id for gate_id in self.required if not gate_entry(gate_id).live]
        return [gate_id for gate_id in offline if gate_id in here | before]

    def obstacles(self, but: Collection[str] = ()) -> list[str]:
        """Return why no arm may train now: revisions that are not pinned, gates not proven.

        Args:
            but: gates that are spoken of elsewhere.
        """
        self.gates.seal()
        groups: dict[str, list[str]] = {}
        for standing in self.standings().values():
            if standing.outcome is not Outcome.PASS and standing.gate_id not in but:
                why = f"{standing.outcome}: {standing.reason}{_few(standing.changed)}"
                groups.setdefault(why, []).append(standing.gate_id)
        unproven = [
            f"{'gate' if len(gates) == 1 else 'gates'} {', '.join(gates)}: {why}"
            for why, gates in groups.items()
        ]
        return [*self.unpinned(), *unproven]

    def unpinned(self) -> list[str]:
        """Return the revisions of the code that are not the recorded ones."""
        return pin_obstacles(self.loaded.spec, self.loaded.pins, PACKAGE_ROOT)

    def unblock(self) -> str:
        """Return the command that removes the first obstacle of :meth:`obstacles`."""
        if self.unpinned():
            return f"python -m harness pin {self._given_spec()}, after a review of the code"
        return self.command("-m preflight")

    def command(self, what: str) -> str:
        """Return the pytest command of this session's options that runs ``what``."""
        return next_command(self.options, what)

    def close(self) -> None:
        """Seal and close the evidence and stop the service this session started."""
        self.gates.close()
        if "service" in self.__dict__:
            self.service.stop()

    def summary(self, exit_code: int, counts: Mapping[str, int]) -> dict[str, Any]:
        """Return the machine-readable end of the session (``last-session.json``)."""
        return {
            "version": 1,
            "spec": self.loaded.name,
            "spec_digest": self.loaded.digest,
            "required_gates": list(self.required),
            "gates": {
                gate_id: {
                    "outcome": outcome.value,
                    "reason": reason,
                    "live": gate_entry(gate_id).live,
                }
                for gate_id, (outcome, reason) in self.gates.outcomes.items()
            },
            "blocked": self.blocked,
            "undecided": self.undecided,
            "tests": dict(counts),
            "exit_code": exit_code,
        }


def _few(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f" (changed: {shown}{more})"


def exit_code(pytest_status: int, *, blocked: bool, undecided: bool) -> int:
    """Return the session's exit code (design §1).

    pytest's own codes stand when they are not 0; then 10 for gates that are not proven and 11 for
    an outcome that is not known.
    """
    if pytest_status != 0:
        return pytest_status
    if blocked:
        return 10
    return 11 if undecided else 0
