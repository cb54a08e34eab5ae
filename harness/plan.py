"""The first of a run's three acts: what will be done, written before anything is done.

``plan.json`` fixes the spec's digest, both arms' effective configuration, the exact rows of both
splits and the prompt order, the service and the code. Every later stage reads it from the run's
folder and refuses to work on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.arm_dataset import prompt_ids_sha256
from harness.digest import parse_json
from harness.errors import StoreError
from harness.gates.binding import Binding
from harness.problems import Problem, ProblemSet, load_problems, step_batches, training_order
from harness.reading import read_regular
from harness.record_version import refuse_other_version
from harness.rollout_seeds import SEED_RULE
from harness.run_files import (
    GATES_FOLDER,
    INITIAL_ADAPTER,
    INITIAL_NAME,
    PLAN_NAME,
    SPEC_COPY_NAME,
)
from harness.similarity import similarity_parameters
from harness.spec import LoadedSpec, load_spec
from harness.spec_model import Arm, ExperimentSpec

__all__ = ["GATES_FOLDER", "INITIAL_NAME", "PLAN_NAME", "SPEC_COPY_NAME", "PlannedRun"]
__all__ += ["PLAN_VERSION", "effective_config", "make_plan", "parse_plan", "read_plan"]

PLAN_VERSION = 1
"""Of all of a run's records; raised when an older harness could misread them."""


def effective_config(spec: ExperimentSpec, arm: Arm) -> dict[str, Any]:
    """Return everything an arm's training is configured with, defaults filled in."""
    execution = spec.execution
    return {
        "arm": arm.name,
        "base_model": spec.base_model,
        "lora_rank": spec.lora_rank,
        "advantage_mode": arm.advantage_mode,
        "tau": arm.tau,
        "similarity": arm.similarity,
        "similarity_parameters": similarity_parameters(arm.similarity),
        "group_size": arm.group_size,
        "groups_per_batch": arm.groups_per_batch,
        "rollouts_per_step": arm.group_size * arm.groups_per_batch,
        "seed": arm.seed,
        "steps": arm.steps,
        "num_substeps": 1,
        "loss_fn": execution.loss_fn,
        "optimizer": {
            "name": spec.optimizer.name,
            "learning_rate": arm.lr,
            "beta1": execution.optimizer.beta1,
            "beta2": execution.optimizer.beta2,
            "eps": execution.optimizer.eps,
        },
        "temperature": execution.temperature,
        "max_tokens": execution.max_tokens,
        "renderer": execution.renderer,
        "fewshot_prefix": execution.fewshot_prefix,
        "data_seed": execution.data_seed,
        "remove_constant_reward_groups": False,
        "kl_penalty_coef": 0.0,
        "checkpoint_every": execution.checkpoint_every,
        "sampling_seeds": SEED_RULE,
    }


def make_plan(
    loaded: LoadedSpec,
    run_id: str,
    train: ProblemSet,
    test: ProblemSet,
    binding: Binding,
    code: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the document ``plan.json``.

    Args:
        loaded: the preregistered spec.
        run_id: the run's name.
        train: rows that arms train on.
        test: rows that arms are evaluated on.
        binding: content of the tree, packages and service.
        code: git state.
    """
    spec = loaded.spec
    order = training_order(train, spec.execution.data_seed)
    return {
        "version": PLAN_VERSION,
        "run": run_id,
        "spec": loaded.name,
        "spec_digest": loaded.digest,
        "spec_notes": list(loaded.notes),
        "service": dict(binding.service),
        "binding_digest": binding.digest(),
        "offline_binding_digest": binding.offline_digest(),
        "versions": dict(binding.versions),
        "code": dict(code),
        "problems": {
            "train": {"source": train.source, "sha256": train.sha256},
            "test": {"source": test.source, "sha256": test.sha256},
        },
        "arms": {
            arm.name: {
                "effective_config": effective_config(spec, arm),
                "prompts_sha256": _order_digest(step_batches(order, arm)),
            }
            for arm in spec.trainings
        },
    }


def _order_digest(batches: Sequence[Sequence[Problem]]) -> str:
    return prompt_ids_sha256([problem for batch_P in batches for problem in batch_P])


def _of_seed(name: str, seed: int | None, suffix: str = "") -> str:
    """Return a file's name with the seed in it, or as it is for None."""
    return name if seed is None else f"{name.removesuffix(suffix)}.seed{seed}{suffix}"


@dataclass(frozen=True)
class PlannedRun:
    """A run's plan, read back and checked against the rows it names.

    Attributes:
        folder: the run's folder.
        loaded: the run's own copy of the spec.
        plan: the document.
        gsm8k_dir: folder of offline rows, where the data set needs one.
    """

    folder: Path
    loaded: LoadedSpec
    plan: Mapping[str, Any]
    gsm8k_dir: Path | None

    @property
    def spec(self) -> ExperimentSpec:
        """The spec of the run."""
        return self.loaded.spec

    def initial_state(self, seed: int | None = None) -> dict[str, Any]:
        """Return the adapter that every arm of a seed starts from; None is the first seed."""
        path = self.initial_path(seed)
        return parse_json(read_regular(path), where=f"{self.folder.name}/{path.name}")

    def initial_path(self, seed: int | None = None) -> Path:
        """Return where a seed's initial state is recorded; the first seed's is ``initial.json``."""
        return self.folder / _of_seed(INITIAL_NAME, self._later_seed(seed), ".json")

    def initial_adapter(self, seed: int | None = None) -> Path:
        """Return the folder of a seed's initial adapter."""
        return self.folder / _of_seed(INITIAL_ADAPTER, self._later_seed(seed))

    def _later_seed(self, seed: int | None) -> int | None:
        return None if seed == self.spec.decision_rule.seeds[0] else seed

    def train_batches(self, arm: Arm) -> list[tuple[Problem, ...]]:
        """Return the problems of each of the arm's steps, checked against the plan.

        Raises:
            StoreError: when rows or order differ from the plan's.
        """
        batches = step_batches(self._training_order, arm)
        planned = self.plan["arms"][arm.name]["prompts_sha256"]
        self._expect(f"prompt order of {arm.name}", planned, _order_digest(batches))
        return batches

    def test_problems(self) -> tuple[Problem, ...]:
        """Return the evaluation's problems, checked against the plan.

        Raises:
            StoreError: when the rows differ from the plan's.
        """
        return self._test_problems

    # Read once: rows that are the planned ones stay so, whatever becomes of their files.
    @cached_property
    def _test_problems(self) -> tuple[Problem, ...]:
        test = load_problems(self.spec, "test", self.gsm8k_dir)
        self._expect("test rows", self.plan["problems"]["test"]["sha256"], test.sha256)
        return test.problems

    @cached_property
    def _training_order(self) -> tuple[Problem, ...]:
        train = load_problems(self.spec, "train", self.gsm8k_dir)
        self._expect("train rows", self.plan["problems"]["train"]["sha256"], train.sha256)
        return training_order(train, self.spec.execution.data_seed)

    def _expect(self, what: str, planned: str, found: str) -> None:
        if planned != found:
            raise StoreError(
                f"the {what} are not the ones the run was planned with",
                expected=planned,
                found=found,
                where=f"{self.folder.name}/{PLAN_NAME}",
                fix="start a new run with --fresh",
            )


class PlanVersionError(StoreError):
    """A run was planned by a version of the harness that writes other records."""


def parse_plan(folder: Path) -> dict[str, Any]:
    """Read ``plan.json`` and check that this harness understands it.

    Raises:
        PlanVersionError: for another version of the records, before anything else is read.
        StoreError: when it cannot be read.
        DocumentError: when it is not strict JSON.
    """
    path = folder / PLAN_NAME
    try:
        plan = parse_json(read_regular(path), where=f"{folder.name}/{PLAN_NAME}")
    except StoreError as error:
        raise StoreError(
            "the run has no readable plan",
            expected=PLAN_NAME,
            found=error.found,
            where=folder.name,
            fix="start a new run with --fresh",
        ) from error
    if not isinstance(plan, dict):
        raise StoreError(
            "the run has no readable plan",
            expected="an object",
            found=type(plan).__name__,
            where=f"{folder.name}/{PLAN_NAME}",
            fix="start a new run with --fresh",
        )
    refuse_other_version(plan, "plan", where=f"{folder.name}/{PLAN_NAME}", error=PlanVersionError)
    return plan


def read_plan(folder: Path, gsm8k_dir: Path | None) -> PlannedRun:
    """Read a run's plan and its own copy of the spec.

    Raises:
        StoreError: when the plan cannot be read, is of another version, or the spec's copy is not
            the planned one.
    """
    plan = parse_plan(folder)
    loaded = load_spec(folder / SPEC_COPY_NAME)
    run = PlannedRun(folder, loaded, plan, gsm8k_dir)
    run._expect("spec's contents", plan["spec_digest"], loaded.digest)
    return run
