"""Rebuilds the embedded model: ``python -m harness.local_service.warm_start``.

A two-layer Qwen3 model learns to answer the task in mixed styles (`styles`) and, in two thirds
of its rows, bare arithmetic. Muon moves the matrices, AdamW the embedding and the norms; what is
kept is a running average of the weights. Training stops on a target, never on time: equations
right at `Recipe.equation_target`, and greedy accuracy on held-out problems inside
`Recipe.greedy_target`, which is narrower than the band of issue 2, part 4.

No row of either split under `task.TASK_SEED` is trained on or used to stop. One seed and one
thread give the same bytes again on the same machine.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen3ForCausalLM

from harness.errors import HarnessError, ServiceError
from harness.local_service.band import measure
from harness.local_service.model_files import check_model, save_model
from harness.local_service.recipe import Recipe, new_model, new_optimizers
from harness.local_service.task import (
    TASK_SEED,
    distinct_problems,
    folded_text,
    generate_problems,
)
from harness.local_service.tokenizer import (
    MODEL_DIR,
    build_tokenizer,
    task_texts,
)
from harness.local_service.warm_rows import RowMaker, TokenRow, task_renderer


@dataclass(frozen=True)
class Progress:
    """One check of the averaged weights against the targets."""

    step: int
    equations_right: float
    greedy_accuracy: float | None

    def line(self) -> str:
        """Return the check as one line for a person."""
        greedy = "not measured" if self.greedy_accuracy is None else f"{self.greedy_accuracy:.3f}"
        return f"step {self.step}: equations right {self.equations_right:.3f}, greedy {greedy}"


class WarmStart:
    """One run of the recipe: its model, its average, its rows.

    Args:
        recipe: what to run.
    """

    def __init__(self, recipe: Recipe) -> None:
        seeds = recipe.seeds()
        self.recipe = recipe
        self.tokenizer = build_tokenizer(task_texts())
        self.renderer = task_renderer(self.tokenizer)
        self.model = new_model(recipe, self.tokenizer)
        self.average = deepcopy(self.model)
        self._problems = distinct_problems(seeds["problems"], _rows_of_the_task())
        self._held_out = list(itertools.islice(self._problems, recipe.held_out_problems))
        self._rows = RowMaker(
            self.tokenizer, self.renderer, style_seed=seeds["styles"], drill_seed=seeds["drills"]
        )
        self._drills = RowMaker(
            self.tokenizer, self.renderer, style_seed=0, drill_seed=seeds["held_out_drills"]
        ).drills(recipe.held_out_drills)
        self._muon, self._adamw = new_optimizers(self.model, recipe)

    def run(self) -> Iterator[Progress]:
        """Train until both targets are met, yielding each check.

        Raises:
            ServiceError: when `Recipe.max_steps` pass without meeting them.
        """
        check: Progress | None = None
        for step in range(1, self.recipe.max_steps + 1):
            self._train_step()
            self._update_average(step)
            if step % self.recipe.check_every_steps == 0:
                check = self._check(step)
                yield check
                if self._meets_targets(check):
                    return
        raise ServiceError(
            "the warm start missed its targets",
            expected=f"equations right {self.recipe.equation_target} and greedy accuracy in "
            f"{self.recipe.greedy_target} within {self.recipe.max_steps} steps",
            found="no check" if check is None else check.line(),
            where=f"seed {self.recipe.seed}",
            fix="try another seed, or more steps",
        )

    def _train_step(self) -> None:
        answered = self._rows.answered(self._problems, self.recipe.answered_rows)
        loss = self._loss(answered) + self._loss(self._rows.drills(self.recipe.drill_rows))
        loss.backward()
        self._muon.step()
        self._adamw.step()
        self.model.zero_grad()

    def _loss(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        """Return the mean cross-entropy over the masked-in tokens of the rows."""
        ids, mask = self._rows.batch(rows)
        learnt = mask[:, 1:] > 0
        hidden = self.model.model(input_ids=ids[:, :-1]).last_hidden_state[learnt]
        return cross_entropy(self.model.lm_head(hidden), ids[:, 1:][learnt])

    @torch.no_grad()
    def _update_average(self, step: int) -> None:
        # Early on the average follows closely, or the random start would stay in it.
        decay = min(self.recipe.average_decay, step / (step + 10))
        pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
        for average, current in pairs:
            average.lerp_(current, 1 - decay)

    def _check(self, step: int) -> Progress:
        equations = equations_right(self.average, *self._rows.batch(self._drills))
        if equations < self.recipe.equation_target:
            return Progress(step, equations, None)
        scores = measure(self.average, self.tokenizer, self.renderer, self._held_out)
        return Progress(step, equations, scores.accuracy)

    def _meets_targets(self, check: Progress) -> bool:
        low, high = self.recipe.greedy_target
        return check.greedy_accuracy is not None and low <= check.greedy_accuracy <= high


@torch.no_grad()
def equations_right(model: Qwen3ForCausalLM, ids: torch.Tensor, mask: torch.Tensor) -> float:
    """Return the share of drill equations whose every result token is the likeliest.

    Args:
        model: the embedded model.
        ids: drills, int64 of shape (_D, _T).
        mask: 1 on the result tokens, of the same shape.
    """
    missed = (model(input_ids=ids[:, :-1]).logits.argmax(-1) != ids[:, 1:]) & (mask[:, 1:] > 0)
    # Results are the runs of ones in the mask: number them along each row.
    starts = (mask[:, 1:] > 0) & (mask[:, :-1] == 0)
    number = starts.cumsum(-1)
    wrong = {(row, int(number[row, place])) for row, place in missed.nonzero().tolist()}
    return 1 - len(wrong) / int(starts.sum())


def _rows_of_the_task() -> frozenset[str]:
    problems = generate_problems("test", TASK_SEED) + generate_problems("train", TASK_SEED)
    return frozenset(folded_text(problem.question) for problem in problems)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the sums' order, hence the model's bytes, depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def rebuild(recipe: Recipe, out: Path) -> Path:
    """Run the recipe and save the model with its record; return the record's path.

    Raises:
        ServiceError: when the recipe misses its targets, or the model misses the band.
    """
    with one_thread():
        run = WarmStart(recipe)
        checks = []
        for check in run.run():
            _say(check.line())
            checks.append(check)
        training = {
            "settings": asdict(recipe),
            "seeds": recipe.seeds(),
            "steps": checks[-1].step,
            "checks": [asdict(check) for check in checks],
        }
        return save_model(run.average, run.tokenizer, training, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild the model, or check the one that is there; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.local_service.warm_start")
    parser.add_argument("--out", type=Path, default=MODEL_DIR, help="folder of the model")
    parser.add_argument("--seed", type=int, default=Recipe.seed, help="seed of the recipe")
    parser.add_argument(
        "--check",
        action="store_true",
        help="train nothing: compare the model's digests and figures with its record",
    )
    chosen = parser.parse_args(arguments)
    try:
        if not chosen.check:
            rebuild(Recipe(seed=chosen.seed), chosen.out)
        with one_thread():
            for line in check_model(chosen.out):
                _say(line)
    except HarnessError as error:
        _say(str(error))
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
