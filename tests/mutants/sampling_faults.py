"""Faults of sampling: decoding, seeds, endings, log-probabilities, stale weights."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import torch

from harness.local_service import decoder, draw, engine, sampler, sampling_routes, training
from tests.mutants.fault_registry import fault


@fault("greedy_decoding", "greedy accuracy is that of sampling")
def temperature_zero_sampled() -> None:
    honest = draw.draw_tokens

    def always_warm(logits_RV: torch.Tensor, params_R: list[Any], streams_R: list[Any]) -> Any:
        warm = [replace(p, temperature=p.temperature or 1.0) for p in params_R]
        return honest(logits_RV, warm, streams_R)

    draw.draw_tokens = always_warm


@fault("greedy_decoding", "greedy accuracy is that of the second choice")
def greedy_takes_second() -> None:
    honest = draw.draw_tokens

    def second(logits_RV: torch.Tensor, params_R: list[Any], streams_R: list[Any]) -> torch.Tensor:
        tokens_R = honest(logits_RV, params_R, streams_R)
        for r, params in enumerate(params_R):
            top = logits_RV[r].topk(2)
            if params.temperature == 0 and float(top.values[0] - top.values[1]) < 1.0:
                tokens_R[r] = top.indices[1]
        return tokens_R

    draw.draw_tokens = second


@fault("sampling_seeds", "a recorded seed does not reproduce its rollout")
def sampling_seed_ignored() -> None:
    draw.seeded_key = lambda _seed, _index: os.urandom(32)


@fault("sampling_seeds", "all rollouts of one seeded request are one rollout")
def seed_clones_rollouts() -> None:
    honest = draw.seeded_key
    draw.seeded_key = lambda seed, _index: honest(seed, 0)


@fault("sampling_seeds", "a group's unseeded rollouts are one rollout: every advantage is 0")
def unseeded_group_cloned() -> None:
    honest = draw.unseeded_key
    draw.unseeded_key = lambda seed, sha, request, _again, _index: honest(seed, sha, request, 0, 0)


@fault("sampling_seeds", "rollouts are drawn at another temperature than the log-probabilities")
def sampled_too_hot() -> None:
    honest = draw.draw_tokens
    draw.draw_tokens = lambda logits, params, streams: honest(logits / 1.3, params, streams)


@fault("stop_reasons", "every answer looks cut: formats are marked wrong and rewards drop")
def stop_token_dropped() -> None:
    honest = sampling_routes._encode_row

    def drop(row: sampler.Row) -> Any:
        if row.stopped:
            row.tokens, row.logprobs = row.tokens[:-1], row.logprobs[:-1]
        return honest(row)

    sampling_routes._encode_row = drop


@fault("stop_reasons", "answers are longer than planned")
def max_tokens_ignored() -> None:
    honest = sampling_routes.make_rows

    def longer(*arguments: Any) -> list[sampler.Row]:
        rows = honest(*arguments)
        for row in rows:
            row.max_tokens += 5
        return rows

    sampling_routes.make_rows = longer


@fault("stop_reasons", "truncated answers count as finished")
def length_reported_as_stop() -> None:
    honest = sampling_routes._encode_row

    def lie(row: sampler.Row) -> Any:
        row.stopped = True
        return honest(row)

    sampling_routes._encode_row = lie


@fault("sampler_trainer_agreement", "importance ratios are wrong from the first step")
def logprobs_at_another_temperature() -> None:
    honest = sampler.token_logprobs
    sampler.token_logprobs = lambda logits_RV, tokens_R: honest(logits_RV / 1.3, tokens_R)


@fault("sampler_trainer_agreement", "the sampler scales the adapter otherwise than the trainer")
def sampler_halves_the_adapter() -> None:
    honest = decoder.merged
    decoder.merged = lambda weight, pair, scale: honest(weight, pair, scale / 2)


@fault("sampler_freshness", "rollouts come from the weights of one step before")
def sampler_one_step_behind() -> None:
    honest, last = training.snapshot, {}

    def stale(state: Any) -> training.Snapshot:
        fresh = honest(state)
        older = last.get(id(state.adapter), fresh)
        last[id(state.adapter)] = fresh
        return older

    training.snapshot = stale


@fault("sampler_freshness", "the evaluated checkpoint is the arm's first, not its last")
def saved_sampler_is_the_first() -> None:
    honest, first = training.load_snapshot, {}

    def stale(host: training.TrainingHost, uri: str) -> training.Snapshot:
        return first.setdefault(uri.split("/")[2], honest(host, uri))

    training.load_snapshot = stale


@fault("sampler_freshness", "a sampler that was handed out follows the training")
def old_sampler_moves() -> None:
    honest, live = training.snapshot, {}

    def shared(state: Any) -> training.Snapshot:
        live[str(id(state.adapter))] = state.adapter
        return replace(honest(state), sha256=str(id(state.adapter)))

    def merge(host: training.TrainingHost, frozen: training.Snapshot) -> Any:
        adapter = live.get(frozen.sha256)
        config, pairs = (frozen.config, {}) if adapter is None else (adapter.config, adapter.pairs)
        return decoder.merge(host.base, config, pairs)

    training.snapshot, training.merge_snapshot = shared, merge
    engine.IDLE_BATCHES_KEPT = 0
