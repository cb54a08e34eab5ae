"""A run on a fork knows what it started by exact name, and is not final while any of it is up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mini_project import ROOT
from small_run import small_spec_json, write_rows, write_spec

from harness.__main__ import main
from harness.errors import ArmError, StoreError, UsageError
from harness.experiment import Experiment
from harness.fork_cleanup import app_states, require_cleaned, still_up
from harness.fork_run import keep_fork, new_run_id, record_fork, waiting_fork
from harness.pins import record_pins
from harness.session import HarnessSession, Options
from harness.spec import LoadedSpec, load_spec

REPORTED = {"model_name": "m", "optimizer_config": {"type": "adamw"}}


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSpec:
    record_pins(write_spec(tmp_path, small_spec_json()).path, ROOT)
    return load_spec(tmp_path / "spec.json")


@pytest.fixture
def recorded(tmp_path: Path, loaded: LoadedSpec) -> str:
    """A fork's apps, recorded; returns the run id they are named after."""
    run_id = new_run_id(loaded)
    apps = (f"trainer-{run_id}", f"{run_id}-sampler")
    record_fork(tmp_path / "artifacts", loaded, run_id, apps, "abc123", b"+ a line\n")
    return run_id


@pytest.fixture
def run(tmp_path: Path, loaded: LoadedSpec, recorded: str) -> Path:
    """The folder of a run that has made its initial state."""
    folder = tmp_path / "artifacts" / "runs" / loaded.name / recorded
    folder.mkdir(parents=True)
    keep_fork(tmp_path / "artifacts", loaded.name, folder, REPORTED)
    return folder


def test_the_record_says_what_was_deployed_and_what_optimizer_was_seen(
    run: Path, recorded: str
) -> None:
    fork = json.loads((run / "fork.json").read_text())
    assert fork["run_id"] == recorded
    assert fork["apps"] == [f"trainer-{recorded}", f"{recorded}-sampler"]
    assert fork["code_revision"] == "abc123"
    assert fork["observed_optimizer"] == {"type": "adamw"}
    assert (run / "fork.patch").read_bytes() == b"+ a line\n"


@pytest.mark.parametrize("app", ["trainer", "trainer-{id}/x", "trainer-{id} "])
def test_an_app_that_cannot_be_told_from_others_is_refused(
    app: str, tmp_path: Path, loaded: LoadedSpec
) -> None:
    run_id = new_run_id(loaded)
    with pytest.raises(UsageError, match="told from those of other runs"):
        record_fork(tmp_path, loaded, run_id, (app.format(id=run_id),), "abc", None)
    with pytest.raises(UsageError, match="another spec"):
        record_fork(tmp_path, loaded, "20261130T000000Z-00000000", ("x",), "abc", None)


def test_what_was_started_is_recorded_once(
    tmp_path: Path, loaded: LoadedSpec, recorded: str
) -> None:
    with pytest.raises(StoreError):
        record_fork(tmp_path / "artifacts", loaded, recorded, (f"x-{recorded}",), "abc", None)


def test_a_new_run_on_a_fork_takes_the_id_its_apps_are_named_after(
    tmp_path: Path, loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    for name in ("TINKER_API_KEY", "RUNS_PROXY_TOKEN_ID", "RUNS_PROXY_TOKEN_SECRET"):
        monkeypatch.setenv(name, "tml-not-for-anybody")
    rows, artifacts = write_rows(tmp_path / "rows"), tmp_path / "artifacts"
    options = Options(ROOT, loaded.path, "fork", (), artifacts, rows)
    with pytest.raises(UsageError, match="nothing says what was started"):
        _ = Experiment(HarnessSession(options, [].append)).run
    run_id = new_run_id(loaded)
    record_fork(artifacts, loaded, run_id, (f"x-{run_id}",), "abc", None)
    assert Experiment(HarnessSession(options, [].append)).run.folder.name == run_id
    with pytest.raises(UsageError, match="none that is not used yet"):
        waiting_fork(artifacts, loaded.name)


def test_states_go_by_exact_name() -> None:
    found = app_states(["a-1", "b-1", "c-1"], ["a-1\n", "b-10", "xb-1", "c-1"], {"c-1": "asked"})
    assert [(state.name, state.state) for state in found] == [
        ("a-1", "up"),
        ("b-1", "down"),
        ("c-1", "left"),
    ]
    with pytest.raises(UsageError, match=r"did not start this.*found: b-10"):
        app_states(["a-1"], ["b-10"], {"b-10": "not ours"})


def test_the_result_waits_for_an_empty_list_or_a_reason(
    run: Path, recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, sampler = f"trainer-{recorded}", f"{recorded}-sampler"
    listing = tmp_path / "up.txt"

    def cleanup(*up: str, left: tuple[str, ...] = ()) -> int:
        listing.write_text("\n".join(up))
        return main(["cleanup", str(run), "--up", str(listing), *left])

    assert main(["cleanup", str(run)]) == 3
    said = capsys.readouterr().out
    assert f"modal app stop {trainer}\n" in said
    with pytest.raises(ArmError, match=trainer):
        require_cleaned(run)
    assert cleanup(trainer, "someone-elses") == 1
    said = capsys.readouterr().out
    assert f"up    {trainer}  stop it with: modal app stop {trainer}" in said
    assert f"down  {sampler}" in said
    assert "someone-elses" not in said
    assert still_up(run) == [trainer]
    assert cleanup(trainer, left=("--left", trainer, "shared with the next run")) == 0
    require_cleaned(run)
    # The newest record counts: what was down may be up again.
    assert cleanup(trainer, sampler) == 1
    with pytest.raises(ArmError, match="not final"):
        require_cleaned(run)
    assert cleanup() == 0
    require_cleaned(run)


def test_a_run_without_a_fork_has_nothing_to_clean_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_cleaned(tmp_path)
    assert main(["cleanup", str(tmp_path)]) == 0
    assert "started nothing" in capsys.readouterr().out


def test_the_command_gives_out_an_id_and_records(
    tmp_path: Path, loaded: LoadedSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--artifacts", str(tmp_path / "artifacts")]
    assert main(["fork", str(loaded.path), *where]) == 0
    run_id = capsys.readouterr().out.splitlines()[0]
    assert run_id.endswith(loaded.digest[:8])
    command = ["fork", str(loaded.path), "--run-id", run_id, *where]
    assert main(command) == 4
    assert main([*command, "--revision", "abc", "--app", f"x-{run_id}"]) == 0
    assert waiting_fork(tmp_path / "artifacts", loaded.name).apps == (f"x-{run_id}",)
