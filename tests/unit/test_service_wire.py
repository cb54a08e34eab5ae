"""What a protobuf request must be like: every broken one is refused by field."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.response_conv import deserialize_forward_backward_output

from harness.local_service import wire
from harness.local_service.refusals import RefusalError
from harness.local_service.trainer import PassResult

LIMITS = wire.Limits(vocab_size=50, context_length=8)


def tensor(values: list[float], kind: type = np.float32) -> pb.Tensor:
    dtype = pb.DTYPE_INT64 if kind is np.int64 else pb.DTYPE_FLOAT32
    array = np.asarray(values, dtype=kind)
    return pb.Tensor(dense=array.tobytes(), dtype=dtype, shape=[len(values)])


def request(size: int = 3, loss_fn: str = "importance_sampling") -> pb.ForwardBackwardRequest:
    message = pb.ForwardBackwardRequest(model_id="m", seq_id=1, loss_fn=loss_fn)
    datum = message.data.add()
    ids = np.arange(1, size + 1, dtype=np.int32)
    datum.model_input.add().encoded_text.tokens = ids.tobytes()
    datum.loss_fn_inputs["target_tokens"].CopyFrom(tensor([*range(2, size + 2)], np.int64))
    datum.loss_fn_inputs["logprobs"].CopyFrom(tensor([-1.0] * size))
    datum.loss_fn_inputs["advantages"].CopyFrom(tensor([0.5] * size))
    return message


def test_a_good_request_decodes() -> None:
    body = wire.decode_pass(request(), LIMITS)
    assert body.data[0].tokens.tolist() == [1, 2, 3]
    assert body.data[0].targets.tolist() == [2, 3, 4]
    assert body.data[0].inputs["advantages"].tolist() == [0.5] * 3


def test_several_chunks_are_one_sequence() -> None:
    message = request()
    del message.data[0].model_input[:]
    for part in ([1], [2, 3]):
        chunk = message.data[0].model_input.add()
        chunk.encoded_text.tokens = np.asarray(part, dtype=np.int32).tobytes()
    assert wire.decode_pass(message, LIMITS).data[0].tokens.tolist() == [1, 2, 3]


def _set(name: str, value: pb.Tensor) -> Callable[[pb.ForwardBackwardRequest], None]:
    return lambda message: message.data[0].loss_fn_inputs[name].CopyFrom(value)


def _tokens(values: list[int]) -> Callable[[pb.ForwardBackwardRequest], None]:
    data = np.asarray(values, dtype=np.int32).tobytes()
    return lambda message: setattr(message.data[0].model_input[0].encoded_text, "tokens", data)


BROKEN: dict[str, Callable[[pb.ForwardBackwardRequest], None]] = {
    "nan advantage": _set("advantages", tensor([0.5, float("nan"), 0.5])),
    "infinite logprob": _set("logprobs", tensor([0.0, float("-inf"), 0.0])),
    "short advantages": _set("advantages", tensor([0.5])),
    "mask sent": _set("mask", tensor([1.0, 1.0, 1.0])),
    "logprobs missing": lambda m: m.data[0].loss_fn_inputs.pop("logprobs") and None,
    "target outside": _set("target_tokens", tensor([1, 2, 50], np.int64)),
    "target negative": _set("target_tokens", tensor([1, 2, -1], np.int64)),
    "targets not whole": _set("target_tokens", tensor([1.0, 2.0, 3.0])),
    "input outside": _tokens([1, 2, 50]),
    "input empty": _tokens([]),
    "image chunk": lambda m: setattr(m.data[0].model_input[0].image, "format", "png"),
    "no datums": lambda m: m.ClearField("data"),
    "unknown loss": lambda m: setattr(m, "loss_fn", "dro"),
    "no loss": lambda m: setattr(m, "loss_fn", ""),
    "loss option": lambda m: m.loss_fn_config.update({"beta": 1.0}),
    "text option": lambda m: setattr(m.loss_fn_config_v2["beta"], "text", "x"),
    "two dimensions": _set(
        "advantages", pb.Tensor(dense=b"\0" * 12, dtype=pb.DTYPE_FLOAT32, shape=[3, 1])
    ),
    "sparse": _set("advantages", pb.Tensor(sparse_csr=pb.SparseCsr(), dtype=pb.DTYPE_FLOAT32)),
    "bfloat16": _set("advantages", pb.Tensor(dense=b"\0" * 6, dtype=pb.DTYPE_BFLOAT16, shape=[3])),
    "torn bytes": _set("advantages", pb.Tensor(dense=b"\0" * 11, dtype=pb.DTYPE_FLOAT32)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_request_is_refused(name: str) -> None:
    message = request()
    BROKEN[name](message)
    with pytest.raises(RefusalError) as refused:
        wire.decode_pass(message, LIMITS)
    assert refused.value.status == 400


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    wire.decode_pass(request(size=8), LIMITS)
    with pytest.raises(RefusalError, match="1 to 8 tokens"):
        wire.decode_pass(request(size=9), LIMITS)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(RefusalError):
        wire.parse_pass(b"\xff\xff\xff")


def test_the_sdk_reads_back_what_is_encoded() -> None:
    parts = [np.asarray([-0.5, -1.25], dtype=np.float32), np.asarray([-3.0], dtype=np.float32)]
    body = wire.encode_pass(PassResult(parts, {"loss:sum": 1.0 / 3.0}))
    output = deserialize_forward_backward_output(body)
    assert output.metrics == {"loss:sum": 1.0 / 3.0}
    found = [item["logprobs"].tolist() for item in output.loss_fn_outputs]
    assert found == [[-0.5, -1.25], [-3.0]]
