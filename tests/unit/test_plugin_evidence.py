"""What proves a gate cannot be edited, claimed from elsewhere or hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from mini_project import GATE, HEAD, MEASURED, OFFLINE, make_project, run, write_gates


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


def test_an_edit_while_the_gates_are_collected_proves_nothing(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    code = root / "harness" / "code.py"
    edit = f"import pathlib\npathlib.Path({str(code)!r}).write_text('VALUE = 4\\n')\n"
    (root / "tests" / "preflight" / "test_a.py").write_text(edit)
    result = run(pytester, "-m", "full")
    assert result.ret == 10, f"exit {result.ret}, expected 10: the gates ran on edited code"
    assert "TRAINED" not in result.stdout.str()


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
