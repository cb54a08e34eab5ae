"""What the live gates share: the chosen service, probed with the first test problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from harness.experiment import Experiment
from harness.gates.live_probe import LiveProbe
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.session import HarnessSession

PROBE_ITEMS = 16
NewProbe = Callable[[int], LiveProbe]


@pytest.fixture(scope="module")
def new_probe(
    harness_session: HarnessSession,
    experiment: Experiment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[NewProbe]:
    """Makes a probe of the service on the first ``n`` test problems; one client a module."""
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    problems = load_problems(spec, "test", harness_session.options.gsm8k_dir).problems
    with experiment.sdk_client() as client:
        yield lambda items: LiveProbe(
            client,
            spec,
            problems[:items],
            tmp_path_factory.mktemp("probe"),
            f"probe-{uuid4().hex[:8]}",
            exact=harness_session.service_name == "embedded",
        )


@pytest.fixture(scope="module")
def probe(new_probe: NewProbe) -> LiveProbe:
    return new_probe(PROBE_ITEMS)
