"""Greedy scoring of every test item, under one evaluator that is frozen before the first score.

``python -m harness.evaluate RUN ARM`` scores one arm's final checkpoint (or ``base``, the model
without an adapter) and writes ``predictions/ARM.jsonl``: one row an item, an invalid or truncated
output included with value 0 (contract §7). Rows are kept as they come (``evaluation_parts``), so
that a score that was cut off asks for the missing items only.

The cookbook's own evaluation samples at temperature 1 and never sees the final weights
(tinker-notes §1), so it is not used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook import renderers

import harness.answers
import harness.arm_dataset
from harness.answers import PARSER_ID, grade
from harness.arm import read_done
from harness.arm_dataset import fewshot_prefix, prompt_for, renderer_for
from harness.digest import parse_json, sha256_bytes, sha256_file, sha256_json
from harness.errors import ArmError, StoreError
from harness.evaluation_parts import RowKeeper, kept_rows
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.reading import read_regular
from harness.sdk_generation import sampling_client
from harness.service import register_model_tokenizer, sdk_client
from harness.spec_model import ExperimentSpec
from harness.stage_process import do_stage, run_stage_main
from harness.step_record import token_sha256
from harness.store import write_json_atomic, write_jsonl_new
from harness.training_grader import training_grader_correct

BASE_ARM = "base"
METRIC = "accuracy"
EVALUATOR_NAME = "evaluator.json"
ITEMS_IN_FLIGHT = 512
"""Items asked for and not answered yet, at most: enough to keep a batch of 256 full."""
_TEMPLATE_PROBLEM = Problem("template", "{question}", "#### 0", "0")


def evaluator_object(spec: ExperimentSpec, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the evaluator of contract §7: everything a score depends on but the weights."""
    renderer = renderer_for(spec)
    template = prompt_for(_TEMPLATE_PROBLEM, renderer, fewshot_prefix(spec))
    return {
        "code_sha256": _code_sha256(),
        "prompt_template": renderer.tokenizer.decode(template.to_ints()),
        "decoding": {
            "temperature": 0.0,
            "max_tokens": spec.execution.max_tokens,
            "stop": list(renderer.get_stop_sequences()),
        },
        "parser": PARSER_ID,
        "items": {"ids": [problem.item_id for problem in problems]},
    }


def _code_sha256() -> str:
    files = (Path(__file__), Path(harness.arm_dataset.__file__))
    digests = {path.name: sha256_file(path) for path in files}
    return sha256_json({**digests, "answers": harness.answers.code_sha256()})


def freeze_evaluator(run: PlannedRun) -> str:
    """Write the run's evaluator once and return its id; later calls check that it is the same.

    Raises:
        StoreError: when code, parser, prompt, decoding or items changed since it was frozen.
    """
    evaluator = evaluator_object(run.spec, run.test_problems())
    evaluator_id = sha256_json(evaluator)
    path = run.folder / EVALUATOR_NAME
    if not path.exists():
        write_json_atomic(path, evaluator)
        return evaluator_id
    frozen = parse_json(read_regular(path), where=EVALUATOR_NAME)
    if sha256_json(frozen) != evaluator_id:
        names = {*evaluator, *frozen}
        changed = sorted(key for key in names if evaluator.get(key) != frozen.get(key))
        raise StoreError(
            "the evaluator changed after it was frozen: scores would not be comparable",
            expected=sha256_json(frozen),
            found=f"{evaluator_id} (changed: {', '.join(changed)})",
            where=f"{run.folder.name}/{EVALUATOR_NAME}",
            fix="score every arm and the base model again in a new run: --fresh",
        )
    return evaluator_id


def prediction_row(
    problem: Problem,
    prompt_T: Sequence[int],
    sequence: tinker.SampledSequence,
    text: str,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the item's row.

    Args:
        problem: the item.
        prompt_T: prompt token ids.
        sequence: the one greedy completion.
        text: its text without the stop token.
        about: arm, seed, checkpoint, metric and evaluator_id.
    """
    finished = sequence.stop_reason == "stop"
    graded = grade(text, problem.gold, finished=finished)
    return {
        "item_id": problem.item_id,
        **about,
        "prediction": graded.prediction,
        "reference": problem.gold,
        "value": 1.0 if graded.correct else 0.0,
        "training_grader_correct": training_grader_correct(text, problem.gold),
        "finished": finished,
        "completion_tokens": len(sequence.tokens),
        "prompt_sha256": token_sha256(prompt_T),
        "completion_sha256": token_sha256(sequence.tokens),
        "text_sha256": sha256_bytes(text.encode("utf-8", "surrogatepass")),
        "text": text,
    }


def completion_text(renderer: renderers.Renderer, tokens_T: Sequence[int]) -> str:
    """Decode a completion without its trailing stop token."""
    stops = renderer.get_stop_sequences()
    body_T = list(tokens_T)
    while body_T and body_T[-1] in stops:
        body_T.pop()
    return str(renderer.tokenizer.decode(body_T))


async def score(
    client: tinker.SamplingClient,
    run: PlannedRun,
    evaluator: Mapping[str, Any],
    about: Mapping[str, Any],
    kept: Mapping[str, dict[str, Any]],
    keep: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Sample and grade every test item once, greedily; rows come back in item order.

    At most ``ITEMS_IN_FLIGHT`` items are asked for at once, whatever the size of the test set.

    Args:
        client: samples from the weights that are scored.
        run: the plan, with its items.
        evaluator: the frozen evaluator.
        about: arm, seed, checkpoint, metric and evaluator_id.
        kept: item id → row, of items that were answered before an interruption.
        keep: takes each new row as it comes.
    """
    renderer = renderer_for(run.spec)
    prefix = fewshot_prefix(run.spec)
    decoding = evaluator["decoding"]
    parameters = tinker.SamplingParams(
        max_tokens=decoding["max_tokens"],
        temperature=decoding["temperature"],
        stop=decoding["stop"],
    )

    room = asyncio.Semaphore(ITEMS_IN_FLIGHT)

    async def one(problem: Problem) -> dict[str, Any]:
        if problem.item_id in kept:
            return kept[problem.item_id]
        async with room:
            prompt = prompt_for(problem, renderer, prefix)
            answer = await client.sample_async(
                prompt=prompt, num_samples=1, sampling_params=parameters
            )
        sequence = answer.sequences[0]
        text = completion_text(renderer, sequence.tokens)
        row = prediction_row(problem, prompt.to_ints(), sequence, text, about)
        keep(row)
        return row

    return list(await asyncio.gather(*(one(problem) for problem in run.test_problems())))


def evaluate_arm(run: PlannedRun, arm_name: str) -> list[dict[str, Any]]:
    """Score one arm's final checkpoint, or the base model.

    Raises:
        ArmError: when the arm has not finished training.
    """
    register_model_tokenizer(run.spec)
    evaluator_id = freeze_evaluator(run)
    evaluator = parse_json(read_regular(run.folder / EVALUATOR_NAME), where=EVALUATOR_NAME)
    service = sdk_client()
    if arm_name == BASE_ARM:
        checkpoint, seed = run.spec.base_model, run.spec.decision_rule.seeds[0]
        client = sampling_client(service.create_sampling_client(base_model=checkpoint))
    else:
        done = read_done(run.folder, arm_name)
        planned = run.spec.arm(arm_name).steps
        if done is None or done["steps"] != planned:
            raise ArmError(
                "the arm has not finished training",
                expected=f"done.json with {planned} steps",
                found="nothing" if done is None else f"{done['steps']} steps",
                where=f"arm {arm_name}",
                fix=f"pytest -m full --arm {arm_name}",
            )
        checkpoint, seed = done["sampler_uri"], run.spec.arm(arm_name).seed
        client = sampling_client(service.create_sampling_client(model_path=checkpoint))
    about = {
        "arm": arm_name if arm_name == BASE_ARM else run.spec.arm_of(arm_name),
        "seed": seed,
        "checkpoint": checkpoint,
        "metric": METRIC,
        "evaluator_id": evaluator_id,
    }
    items = [problem.item_id for problem in run.test_problems()]
    kept = kept_rows(run.folder, arm_name, about, items)
    with RowKeeper(run.folder, arm_name) as keeper:
        return asyncio.run(score(client, run, evaluator, about, kept, keeper.keep))


def predictions_path(run_folder: Path, arm_name: str) -> Path:
    """Return where an arm's predictions are."""
    return run_folder / "predictions" / f"{arm_name}.jsonl"


def score_arm(run: PlannedRun, arm_name: str) -> None:
    """Score an arm, or the base model, and write its rows when all of them are there.

    Raises:
        HarnessError: as :func:`evaluate_arm`.
        StoreError: when the rows are there already.
    """
    write_jsonl_new(predictions_path(run.folder, arm_name), evaluate_arm(run, arm_name))


def main(argv: Sequence[str]) -> int:
    """Run ``python -m harness.evaluate RUN ARM [--gsm8k-dir DIR]``; exit 0 on success."""
    return do_stage("harness.evaluate", argv, str, score_arm)


if __name__ == "__main__":
    sys.exit(run_stage_main(main, sys.argv[1:]))
