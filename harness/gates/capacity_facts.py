"""Is a refusal for want of capacity understood as that, and never as a result? (contract §10)

A proxy in front of the service refuses a few requests with 429 and 503, so the service need not be
full. What is measured is the whole way: the SDK retries, the refusal is written down and counted as
capacity, it is over when the service answers, and the answers are those that an undisturbed client
gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker

from harness.answer_log import AnswerLog, observed_answers
from harness.capacity import CapacityState
from harness.closing_client import ClosingClient
from harness.fault_proxy import FaultProxy, Rule, fault_proxy, status
from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import LiveProbe, sample_each
from harness.proxy_headers import also_at
from harness.redact import Redactor
from harness.sdk_generation import sampling_client
from harness.service_fault import FaultKind
from harness.stage_watch import Clock, StageWatch
from harness.store import append_jsonl, read_jsonl

CODES = (429, 503)
REFUSALS = 2
PROMPTS = 4


def measure_capacity(probe: LiveProbe, environment: Mapping[str, str]) -> Measured:
    """Refuse sampling and a forward pass for a while, by each status.

    Args:
        probe: the undisturbed client; its folder takes the log of answers.
        environment: TINKER_BASE_URL and TINKER_API_KEY of the service.
    """
    plain = _completions(probe, probe.client)
    facts: list[Fact] = []
    target = environment["TINKER_BASE_URL"]
    with fault_proxy(target) as proxy, also_at(proxy.base_url, target):
        for code in CODES:
            path = probe.folder / f"answers-{code}.jsonl"
            facts += _one_status(probe, environment, proxy, plain, path, code)
    return Measured(tuple(facts), {"endpoint": "asample", "refusals": REFUSALS})


def _completions(probe: LiveProbe, client: tinker.ServiceClient) -> list[list[int]]:
    sampler = sampling_client(client.create_sampling_client(base_model=probe.spec.base_model))
    params = [probe.params(temperature=0.0)] * PROMPTS
    drawn = sample_each(sampler, probe.prompts_P[:PROMPTS], params)
    return [list(row[0].tokens) for row in drawn]


def _one_status(
    probe: LiveProbe,
    environment: Mapping[str, str],
    proxy: FaultProxy,
    plain: Sequence[Sequence[int]],
    path: Path,
    code: int,
) -> list[Fact]:
    rule = Rule("asample", status(code), times=REFUSALS)
    proxy.rules = [rule]
    log = AnswerLog(path, Redactor.from_environment(environment))
    with (
        observed_answers(log),
        ClosingClient(base_url=proxy.base_url, api_key=environment["TINKER_API_KEY"]) as client,
    ):
        found = _completions(probe, client)
    rows = read_jsonl(path) if path.exists() else ()
    kinds = [row["fault"] for row in rows if "fault" in row]
    seen, lasting = _replayed(rows, path.with_suffix(".replayed"))
    changed = sum(a != b for a, b in zip(found, plain, strict=True))
    allowed = round(probe.tolerances.flip_rate * PROMPTS)
    where = f"status {code}"
    return [
        Fact("requests refused", rule.hits, {"equals": REFUSALS}, VACUOUS, where),
        Fact(
            "refusals written down as something else than capacity",
            sum(kind != FaultKind.CAPACITY for kind in kinds),
            {"equals": 0},
            "a full service would end the run instead of being waited for",
            where,
        ),
        Fact(
            "refusals written down as capacity",
            kinds.count(FaultKind.CAPACITY),
            {"at_least": 1},
            "a full service would look like a slow one: nobody waits, nobody is told",
            where,
        ),
        Fact(
            "the refusal is known while it lasts",
            seen,
            {"equals": True},
            "result.json would not say that the run waits",
            where,
        ),
        Fact(
            "the refusal is still there after the service answered",
            lasting,
            {"equals": False},
            "a run would be given up although the service works",
            where,
        ),
        Fact(
            "completions that a refusal changed",
            changed,
            {"at_most": allowed},
            "a refusal would have become a result: rollouts of another policy, or none",
            where,
        ),
    ]


def _replayed(rows: Sequence[Mapping[str, Any]], growing: Path) -> tuple[bool, bool]:
    """Show the log to the watch of a stage, line by line, as it grew.

    Refusals that were taken for something else would stop the watch; they are counted apart.

    Returns:
        Whether a refusal was known at some time, and whether it still is at the end.
    """
    state = CapacityState(seed=0)
    watch = StageWatch("gate", growing, lambda: None, state, lambda: 0, Clock(), pace=None)
    seen = False
    for row in rows:
        if row.get("fault", FaultKind.CAPACITY) == FaultKind.CAPACITY:
            append_jsonl(growing, dict(row))
            watch.poll()
            seen = seen or state.refusal is not None
    return seen, state.refusal is not None
