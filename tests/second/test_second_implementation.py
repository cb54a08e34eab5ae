"""The live gates against a second implementation of the protocol: SkyRL's Tinker API on a CPU.

Twice: as its authors ship it, and behind an adapter for the SDK's generation. Every gate ends in a
word, never in a crash; which one is a finding about SkyRL and is printed, not asserted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from harness.fault_proxy import fault_proxy
from harness.gates.catalog import CATALOG
from harness.spec import load_spec
from tests.second.gate_table import NOT_OFFERED, OTHER, ROOT, WORDS, run_live_gates, table
from tests.second.generation_adapter import GenerationAdapter
from tests.second.skyrl_service import SkyRL, missing_skyrl, skyrl_service

pytestmark = pytest.mark.slow

LEAST_MEASURED = 4
"""Gates that take measurements behind the adapter, of those that were seen (docs/services.md)."""
STAGED = "this session's pilot cannot be timed"
"""Why the gate on cost is unknown where the pilot was not offered."""


@pytest.fixture(scope="module")
def skyrl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    if reason := missing_skyrl():
        pytest.skip(reason)
    with skyrl_service(tmp_path_factory.mktemp("skyrl")) as running:
        yield running


@pytest.mark.parametrize("adapted", [False, True], ids=["as shipped", "behind the adapter"])
def test_every_live_gate_ends_in_a_word(
    skyrl: SkyRL, adapted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = load_spec(ROOT / "specs" / "local.json").spec.lora_rank
    environment = skyrl.environment()
    with fault_proxy(skyrl.base_url) if adapted else nullcontext() as proxy:
        if proxy is not None:
            GenerationAdapter(proxy, rank)
            environment["TINKER_BASE_URL"] = proxy.base_url
        rows, said = run_live_gates(environment, tmp_path / "artifacts")
    with capsys.disabled():
        title = "behind the adapter" if adapted else "as shipped"
        lines = ["", f"SkyRL {title}, {skyrl.versions}", *table(rows), ""]
        sys.stdout.write("\n".join(lines))
    assert [row.gate for row in rows] == [entry.gate_id for entry in CATALOG if entry.live]
    odd = [row for row in rows if row.word not in WORDS and not row.text.startswith(STAGED)]
    assert not odd, f"gates without one of the words {WORDS}: {odd}\n{said[-3000:]}"
    crashed = [row for row in rows if row.word == "fail" and not row.measured]
    assert not crashed, f"gates that failed without a measurement: {crashed}\n{said[-3000:]}"
    if adapted:
        measured = [row.gate for row in rows if row.measured]
        assert len(measured) >= LEAST_MEASURED, f"only {measured} measured anything"
    else:
        # With today's SDK nothing can be sampled from SkyRL 0.4.0 as it is.
        words = {row.gate: row.word for row in rows}
        assert words["greedy_decoding"] == NOT_OFFERED, words
        assert OTHER not in {words["pilot_activation"]}, words
