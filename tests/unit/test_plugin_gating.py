"""The plugin inside pytest: an arm runs only on proven gates, whatever the command line does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mini_project import GATE, make_project, required_ids, write_gates

OFFLINE = "advantage_properties"
LIVE = "initial_identity"


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:randomly", *arguments)


def outcomes(root: Path) -> dict[str, str]:
    summary = json.loads((root / "artifacts" / "last-session.json").read_text())
    return {gate_id: found["outcome"] for gate_id, found in summary["gates"].items()}


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


def test_collect_only_records_nothing(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert run(pytester, "-m", "preflight", "--collect-only").ret == 0
    assert not (root / "artifacts").exists()


MEASURED = '{head}    gate.check("q", 1.0, effect="e", at_most=2)\n'
XFAIL = "@pytest.mark.xfail(strict=False)\n"
BODIES = {
    "xfail": XFAIL + MEASURED + "    assert False\n",
    "xpass": XFAIL + MEASURED,
    "skip": '{head}    pytest.skip("not today")\n',
    "nothing measured": "{head}    assert True\n",
}
HEAD = """
@pytest.mark.preflight
@pytest.mark.gate("advantage_properties")
def test_advantage_properties(gate):
"""


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


def test_an_edit_between_sessions_is_named_and_blocks(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    run(pytester, "-m", "preflight")
    (root / "harness" / "code.py").write_text("VALUE = 2\n")
    result = run(pytester, "-m", "full", "tests/full")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*stale gates*harness/code.py*"])


def test_an_edit_during_the_gates_proves_nothing(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    edit = (
        '    import pathlib\n    pathlib.Path("harness/code.py").write_text("VALUE = 3\\n")\n'
        '    gate.check("q", 1.0, effect="e", at_most=2)\n'
    )
    write_gates(root, **{OFFLINE: HEAD + edit})
    result = run(pytester, "-m", "full")
    assert result.ret == 10
    assert "TRAINED" not in result.stdout.str()


def test_a_changed_spec_makes_gates_stale(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    run(pytester, "-m", "preflight")
    spec = root / "specs" / "local.json"
    spec.write_text(spec.read_text().replace('"title": "', '"title": "Again: '))
    result = run(pytester, "-m", "full", "tests/full")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*spec:local.json*"])


def test_a_hand_edited_evidence_file_blocks(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    run(pytester, "-m", "preflight")
    for path in (root / "artifacts" / "gates" / "local").glob("*.jsonl"):
        path.write_text(path.read_text().replace('"value": 1.0', '"value": 1.5'))
    result = run(pytester, "-m", "full", "tests/full")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*edited after it was written*"])


def test_stopping_at_the_first_failure_leaves_the_rest_unknown(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: HEAD + "    assert 0\n"})
    assert run(pytester, "-m", "preflight", "-x").ret == 1
    assert set(outcomes(root)) == {OFFLINE}
    assert run(pytester, "-m", "full", "tests/full").ret == 10


def test_two_tests_of_one_gate_are_refused(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    extra = "import pytest\n" + GATE.format(gate_id=OFFLINE, live="").replace(
        "def test_", "def test_2_"
    )
    (root / "tests" / "preflight" / "test_more.py").write_text(extra)
    assert run(pytester, "-m", "preflight").ret == 4


def test_a_gate_that_is_not_in_the_catalogue_is_refused(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    text = "import pytest\n" + GATE.format(gate_id="made_up", live="")
    (root / "tests" / "preflight" / "test_more.py").write_text(text)
    assert run(pytester, "-m", "preflight").ret == 4


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


def prove(root: Path, folder: str, body: str) -> None:
    """Replace the gate's own test by ``body`` in a file of ``folder``."""
    write_gates(root, **{OFFLINE: "\n"})
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "test_claim.py").write_text("import pytest\n" + body)


CASES = HEAD.replace("(gate)", "(gate, case)").replace(
    "@pytest.mark.gate", '@pytest.mark.parametrize("case", [1, 2])\n@pytest.mark.gate'
)
FULL_GATE = "@pytest.mark.full\n@pytest.mark.gate"
CLAIMS = {
    "outside the bound folder": ("tests/unit", MEASURED.format(head=HEAD)),
    "in several cases": ("tests/preflight", MEASURED.format(head=CASES)),
    "as part of the run": (
        "tests/preflight",
        MEASURED.format(
            head=HEAD.replace("@pytest.mark.gate", "@pytest.mark.full\n@pytest.mark.gate")
        ),
    ),
}


@pytest.mark.parametrize("claim", sorted(CLAIMS))
def test_a_gate_cannot_be_claimed(pytester: pytest.Pytester, claim: str) -> None:
    root = make_project(pytester)
    prove(root, *CLAIMS[claim])
    result = run(pytester, "-m", "preflight or full")
    assert result.ret == 4, f"a gate {claim} must be refused"
    assert "TRAINED" not in result.stdout.str()


def test_a_broken_evidence_file_cannot_hide_a_fail(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    write_gates(
        root,
        **{
            OFFLINE: HEAD
            + "    import os\n    assert os.environ.get('PROVE')\n"
            + MEASURED.format(head="")
        },
    )
    run(pytester, "-m", "preflight")
    (failed,) = (root / "artifacts" / "gates" / "local").glob("*.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVE", "1")
        run(pytester, "-m", "preflight")
    failed.write_text(failed.read_text().replace('"at"', '"At"', 1))
    result = run(pytester, "-m", "full", "tests/full")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*evidence refused*"])
