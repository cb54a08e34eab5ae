"""Where an arm that was cut off goes on: the newest state of it that the service still keeps.

The stock loop saves its state after a step and writes one line about it into its
``checkpoints.jsonl``; the line is written when the save is done. A line counts when it is whole and
the service still has the state it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import tinker

from harness.attempts import (
    RESUMED_NAME,
    STEPS_NAME,
    Attempt,
    read_attempts,
    whole_rows,
)
from harness.errors import ServiceError
from harness.sdk_generation import rest_client
from harness.store import append_jsonl, write_json_atomic

COOKBOOK_FOLDER = "cookbook"
CHECKPOINTS_NAME = "checkpoints.jsonl"
FINAL_NAME = "final"
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
Row = Mapping[str, Any]
Keeps = Callable[[str], bool]
"""Whether the service still has the checkpoint of an address."""


@dataclass(frozen=True)
class SavedState:
    """A state of an arm that can be gone on from.

    Attributes:
        attempt: the attempt that saved it.
        step: the step it was saved before: so many are trained in it.
        state_uri: weights and optimizer.
        sampler_uri: weights for sampling; only a final state has them.
    """

    attempt: int
    step: int
    state_uri: str
    sampler_uri: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether it is the arm's end, with nothing left to do."""
        return self.sampler_uri is not None


def newest_kept(
    arm: Path, steps: int, keeps: Keeps, passed_over: Callable[[SavedState], None]
) -> SavedState | None:
    """Return the newest state of an arm that the service keeps, or None where there is none.

    Args:
        arm: the arm's folder.
        steps: how many steps the arm has.
        keeps: asks the service.
        passed_over: told of each newer state that the service does not keep any more.
    """
    attempts = read_attempts(arm)
    for attempt in reversed(attempts):
        folder = attempt.folder(arm)
        rows = whole_rows(folder / COOKBOOK_FOLDER / CHECKPOINTS_NAME)
        trained = len(whole_rows(folder / STEPS_NAME))
        limit = min(_superseded_from(arm, attempts, attempt), attempt.first_step + trained, steps)
        for state in saved_states(attempt, rows, limit=limit, steps=steps):
            uris = [state.state_uri, *filter(None, [state.sampler_uri])]
            if all(keeps(uri) for uri in uris):
                return state
            passed_over(state)
    return None


def saved_states(
    attempt: Attempt, rows: Sequence[Row], *, limit: int, steps: int
) -> Iterator[SavedState]:
    """Yield the states that an attempt saved itself, newest first, and a final one before them.

    Args:
        attempt: whose rows these are; the first of a continued attempt is the state it came from.
        rows: whole lines of its ``checkpoints.jsonl``.
        limit: no state after so many steps counts.
        steps: how many steps the arm has.
    """
    newest_first = list(reversed(rows))
    # The loop's last two saves run side by side, so either may be listed last.
    newest_first.sort(key=lambda row: row.get("name") != FINAL_NAME)
    for row in newest_first:
        step, uri, name = row.get("batch"), row.get("state_path"), row.get("name")
        if type(step) is not int or not isinstance(uri, str) or not 0 < step <= limit:
            continue
        sampler = row.get("sampler_path") if (name, step) == (FINAL_NAME, steps) else None
        if step > attempt.first_step or sampler is not None:
            yield SavedState(attempt.number, step, uri, sampler)


def _superseded_from(arm: Path, attempts: Sequence[Attempt], attempt: Attempt) -> int:
    """Return the first step that a later attempt trained again; a later state would not count."""
    later = [
        other.first_step
        for other in attempts
        if other.number > attempt.number and whole_rows(other.folder(arm) / STEPS_NAME)
    ]
    return min(later, default=2**63)


def service_keeps(client: tinker.ServiceClient) -> Keeps:
    """Return a function that asks the service whether it has a checkpoint.

    It raises :class:`ServiceError` when the service gives another answer than yes or no: starting
    over would throw away what may well be there.
    """
    rest = rest_client(client)

    def keeps(uri: str) -> bool:
        try:
            rest.get_weights_info_by_tinker_path(uri).result()
        except tinker.APIStatusError as error:
            if error.status_code in _GONE:
                return False
            raise ServiceError(
                "the service does not say whether it still has a checkpoint",
                expected="its description, or status 404 or 410",
                found=f"status {error.status_code}",
                where=uri,
                fix="run the same command again later, or start a new run with --fresh",
            ) from error
        return True

    return keeps


def prepare_attempt(folder: Path, number: int, state: SavedState) -> None:
    """Make a new attempt's folder continue a state, as the stock loop understands it.

    ``resumed.json`` comes first: without it the rows of the attempt would count from step 0.
    """
    document = {
        "attempt": number,
        "step": state.step,
        "continues": state.attempt,
        "state_uri": state.state_uri,
    }
    write_json_atomic(folder / RESUMED_NAME, document)
    cookbook = folder / COOKBOOK_FOLDER
    cookbook.mkdir()
    row = {"name": f"{state.step:06d}", "batch": state.step, "state_path": state.state_uri}
    append_jsonl(cookbook / CHECKPOINTS_NAME, row)
