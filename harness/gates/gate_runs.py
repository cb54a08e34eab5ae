"""The gates of one session while they run: claimed, started, judged, written down, sealed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.errors import UsageError
from harness.gates.binding import Binding
from harness.gates.catalog import gate_entry
from harness.gates.evidence import EvidenceWriter
from harness.gates.recorder import GateRecorder, measures_ok
from harness.gates.verdict import Outcome, Phase, judge_phases


@dataclass
class GateRun:
    """One gate's test while it runs."""

    recorder: GateRecorder
    phases: list[Phase] = field(default_factory=list)


class GateRuns:
    """The gates that one session runs.

    Args:
        open_evidence: opens the session's evidence file, at the first gate that starts.
        binding: measures the content that gates are bound to.
        spec_option: names the spec in a command that runs a gate again, or "".

    Attributes:
        tests: gate id of each test that stands for one.
        runs: each gate that was started.
        outcomes: outcome and reason of each gate that was judged.
    """

    def __init__(
        self,
        open_evidence: Callable[[], EvidenceWriter],
        binding: Callable[[], Binding],
        spec_option: str,
    ) -> None:
        self.tests: dict[str, str] = {}
        self.runs: dict[str, GateRun] = {}
        self.outcomes: dict[str, tuple[Outcome, str]] = {}
        self._open_evidence = open_evidence
        self._binding = binding
        self._spec_option = spec_option
        self._evidence: EvidenceWriter | None = None
        self._unsealed = False

    def claim(self, gate_id: str, test_id: str) -> None:
        """Note which test stands for a gate.

        Raises:
            UsageError: for a gate that is not in the catalogue or has another test already.
        """
        taken = {claimed: test for test, claimed in self.tests.items()}
        if gate_entry(gate_id).gate_id in taken:
            raise UsageError(
                f"gate {gate_id} has more than one test",
                expected="one test a gate",
                found=f"{taken[gate_id]} and {test_id}",
                fix="give one of them another gate id",
            )
        self.tests[test_id] = gate_id

    def start(self, gate_id: str) -> GateRecorder:
        """Begin recording a gate; the evidence says so before anything is measured."""
        if self._evidence is None:
            self._evidence = self._open_evidence()
        self._evidence.gate_started(gate_id)
        return self._run(gate_id).recorder

    def add_phase(self, gate_id: str, phase: Phase) -> None:
        """Note one report of a gate's test."""
        self._run(gate_id).phases.append(phase)

    def _run(self, gate_id: str) -> GateRun:
        recorder = GateRecorder(gate_id, gate_entry(gate_id).clause, self._spec_option)
        return self.runs.setdefault(gate_id, GateRun(recorder))

    def finish(self, gate_id: str) -> tuple[Outcome, str]:
        """Judge a gate from its phases and measurements and write the record."""
        run = self.runs[gate_id]
        outcome, reason = judge_phases(run.phases, measures_ok(run.recorder.measures))
        self.outcomes[gate_id] = (outcome, reason)
        if self._evidence is not None:
            self._unsealed = True
            self._evidence.gate_finished(
                gate_id,
                {
                    "clause": run.recorder.clause,
                    "outcome": outcome.value,
                    "reason": reason,
                    "measures": run.recorder.measures,
                    "notes": run.recorder.notes,
                    "duration_s": sum(phase.duration_s for phase in run.phases),
                },
            )
        return outcome, reason

    def seal(self) -> None:
        """Measure the content again, so that an edit during the gates cannot go unnoticed."""
        if self._evidence is not None and self._unsealed:
            self._evidence.closing(self._binding())
            self._unsealed = False

    def close(self) -> None:
        """Seal and close the evidence."""
        self.seal()
        if self._evidence is not None:
            self._evidence.close()
            self._evidence = None
