"""The plugin inside pytest: an arm runs only on proven gates, whatever the command line does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from mini_project import (
    HEAD,
    MEASURED,
    OFFLINE,
    make_project,
    outcomes,
    required_ids,
    run,
    write_gates,
)

LIVE = "initial_identity"


def trained(result: pytest.RunResult) -> int:
    return result.parseoutcomes().get("passed", 0)


def test_gates_proven_today_let_arms_train_tomorrow(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert run(pytester, "-m", "preflight").ret == 0
    assert set(outcomes(root)) == set(required_ids())
    result = run(pytester, "-m", "full")
    assert (result.ret, trained(result)) == (0, 2), "both arms, and no gate again"


def test_full_runs_the_gates_that_are_not_proven(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    result = run(pytester, "-m", "full")
    assert (result.ret, trained(result)) == (0, len(required_ids()) + 2)


def test_one_arm_by_advantage_mode(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    run(pytester, "-m", "preflight")
    result = run(pytester, "-m", "full", "--arm", "gs1")
    assert (result.ret, trained(result)) == (0, 1)


def test_an_unknown_arm_is_a_usage_error(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    result = run(pytester, "-m", "full", "--arm", "ppo")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--arm names no arm*grpo*gs1*"])


def test_artifacts_that_cannot_be_a_folder_are_a_usage_error(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "taken").write_text("a file")
    result = run(pytester, "-m", "preflight", "--artifacts=taken")
    assert result.ret == 4, f"expected a usage error, found exit {result.ret}"
    result.stderr.fnmatch_lines(["*taken*"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "arm"),
        ("--deselect", "tests/preflight/test_gates.py::test_advantage_properties"),
        ("tests/full",),
    ],
    ids=["k", "deselect", "path"],
)
def test_gates_that_did_not_run_block_the_arms(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    make_project(pytester)
    result = run(pytester, "-m", "full", *arguments)
    assert result.ret == 10, "blocked"
    result.stdout.fnmatch_lines(["*blocked*advantage_properties*never run*pytest -m preflight*"])


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_gates_that_were_only_set_up_prove_nothing(pytester: pytest.Pytester, option: str) -> None:
    root = make_project(pytester)
    assert run(pytester, "-m", "preflight", option).ret == 10
    assert set(outcomes(root).values()) == {"unknown"}
    assert run(pytester, "-m", "full", "tests/full").ret == 10


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_arms_that_were_only_set_up_leave_the_outcome_unknown(
    pytester: pytest.Pytester, option: str
) -> None:
    make_project(pytester)
    run(pytester, "-m", "preflight")
    result = run(pytester, "-m", "full", option)
    assert result.ret == 11, f"{option} trains nothing: exit {result.ret}, expected 11"


def test_collect_only_records_nothing(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert run(pytester, "-m", "preflight", "--collect-only").ret == 0
    assert not (root / "artifacts").exists()


XFAIL = "@pytest.mark.xfail(strict=False)\n"
BODIES = {
    "xfail": XFAIL + MEASURED + "    assert False\n",
    "xpass": XFAIL + MEASURED,
    "skip": '{head}    pytest.skip("not today")\n',
    "nothing measured": "{head}    assert True\n",
}


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_a_gate_that_did_not_prove_itself_is_unknown(pytester: pytest.Pytester, kind: str) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: "\n" + BODIES[kind].format(head=HEAD.lstrip("\n"))})
    result = run(pytester, "-m", "full")
    assert result.ret == 10
    assert outcomes(root)[OFFLINE] == "unknown"


FAILING = {
    "measured outside": '{head}    gate.check("q", 3.0, effect="e", at_most=2)\n',
    "assertion": '{head}    gate.check("q", 1.0, effect="e", at_most=2)\n    assert 0\n',
    "subtest": (
        '{head}    gate.check("q", 1.0, effect="e", at_most=2)\n'
        "    with subtests.test():\n        assert 0\n"
    ),
    "teardown": '{head}    gate.check("q", 1.0, effect="e", at_most=2)\n',
}


@pytest.mark.parametrize("kind", sorted(FAILING))
def test_a_failed_gate_blocks_the_arms_and_fails_the_session(
    pytester: pytest.Pytester, kind: str
) -> None:
    root = make_project(pytester)
    head = HEAD.lstrip("\n")
    if kind == "subtest":
        head = head.replace("(gate)", "(gate, subtests)")
    if kind == "teardown":
        head = "@pytest.fixture\ndef broken():\n    yield\n    assert 0\n\n" + head.replace(
            "(gate)", "(gate, broken)"
        )
    write_gates(root, **{OFFLINE: "\n" + FAILING[kind].format(head=head)})
    result = run(pytester, "-m", "full")
    assert result.ret == 1
    assert outcomes(root)[OFFLINE] == "fail"
    assert "TRAINED" not in result.stdout.str()


def test_a_failed_offline_gate_keeps_live_gates_from_contacting_a_service(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: HEAD + "    assert 0\n"})
    run(pytester, "-m", "preflight")
    assert outcomes(root)[LIVE] == "unknown"


def test_stopping_at_the_first_failure_leaves_the_rest_unknown(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: HEAD + "    assert 0\n"})
    assert run(pytester, "-m", "preflight", "-x").ret == 1
    assert set(outcomes(root)) == {OFFLINE}
    assert run(pytester, "-m", "full", "tests/full").ret == 10


def test_plain_pytest_runs_offline_gates_only(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert run(pytester).ret == 0
    assert LIVE not in outcomes(root)
    assert OFFLINE in outcomes(root)


def test_a_bad_spec_is_a_usage_error_that_names_the_field(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    spec = root / "specs" / "local.json"
    spec.write_text(spec.read_text().replace('"batch_size": 64', '"batch_size": 63'))
    result = run(pytester)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*batch_size*"])


def test_optimized_python_is_refused(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    done = subprocess.run(
        [sys.executable, "-O", "-m", "pytest"],
        cwd=pytester.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert "without -O" in done.stderr


def test_a_gate_killed_half_way_is_unknown(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    kill = "    import os\n    os.kill(os.getpid(), 9)\n"
    write_gates(root, **{OFFLINE: MEASURED.format(head=HEAD) + kill})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "preflight"],
        cwd=root,
        capture_output=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == -signal.SIGKILL
    write_gates(root)
    (root / "conftest.py").write_text('pytest_plugins = ["harness.plugin"]\n')
    assert run(pytester, "-m", "full", "tests/full").ret == 10
