"""What an answer or an error means: wait, stop at once, or give up."""

from __future__ import annotations

import httpx
import pytest
import tinker
from google.protobuf.message import DecodeError
from tinker.types import RequestErrorCategory

from harness.service_fault import FaultKind, fault_of_error, kind_of_answer, one_clause

REQUEST = httpx.Request("POST", "http://127.0.0.1:9/api/v1/asample")


def status_error(code: int, text: str = "no") -> tinker.APIStatusError:
    response = httpx.Response(code, request=REQUEST)
    return tinker.APIStatusError(text, response=response, body=None)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (429, "", FaultKind.CAPACITY),
        (503, "", FaultKind.CAPACITY),
        (400, "Capacity exhausted, try later", FaultKind.CAPACITY),
        (500, "CAPACITY_EXHAUSTED", FaultKind.CAPACITY),
        (402, "", FaultKind.BILLING),
        (410, "", FaultKind.GONE),
        (200, "capacity exhausted is only a text here", None),
        (408, "", None),
        (500, "", None),
        (401, "", None),
    ],
)
def test_answers(code: int, text: str, kind: FaultKind | None) -> None:
    assert kind_of_answer(code, text) is kind, f"status {code} {text!r}"


def caused(error: Exception) -> Exception:
    outer = ValueError("Error retrieving result")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (status_error(429), FaultKind.CAPACITY),
        (status_error(404), FaultKind.FAULTY),
        (caused(status_error(503)), FaultKind.CAPACITY),
        (ExceptionGroup("several", [KeyError("x"), status_error(402)]), FaultKind.BILLING),
        (tinker.APIConnectionError(request=REQUEST), FaultKind.UNREACHABLE),
        (caused(DecodeError("truncated")), FaultKind.FAULTY),
        (KeyError("a defect of ours"), None),
    ],
)
def test_errors(error: Exception, kind: FaultKind | None) -> None:
    fault = fault_of_error(error)
    assert (fault.kind if fault else None) is kind, repr(error)


def test_a_failed_future_names_its_route_and_request_whatever_was_answered_last() -> None:
    failed = tinker.RequestFailedError("no LoRA here", "req-1", RequestErrorCategory.User)
    fault = fault_of_error(caused(failed))
    found = fault.message if fault else None
    said = "RequestFailedError: POST /api/v1/retrieve_future said of req-1: no LoRA here"
    assert found == said, f"expected {said!r}, found {found!r}"


def test_a_defect_met_while_handling_a_fault_is_no_fault_of_the_service() -> None:
    defect = KeyError("a defect of ours")
    defect.__context__ = status_error(503)
    assert fault_of_error(defect) is None


def test_a_clause_is_one_line_without_a_sentence_end() -> None:
    found = one_clause("It broke.\nBadly! Why? v1.2 knows. " + "x" * 300)
    assert found.startswith("It broke; Badly; Why; v1.2 knows; xxx")
    assert len(found) <= 200
    assert "\n" not in found


@pytest.mark.parametrize("before", range(90, 130, 7))
def test_no_part_of_a_secret_is_left_where_a_message_is_cut(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    secret = "plain-Words-that-have-no-shape-of-a-token"
    monkeypatch.setenv("TINKER_API_KEY", secret)
    fault = fault_of_error(status_error(401, f"{'x' * before} {secret} is unknown"))
    found = fault.message if fault else ""
    assert found.startswith("APIStatusError: POST /api/v1/asample answered 401"), found
    assert secret[:6] not in found, f"part of the key is left: {found!r}"
