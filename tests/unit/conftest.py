"""Fixtures that several unit-test files share."""

from __future__ import annotations

from toy_qwen import toy_model, toy_service, wire

__all__ = ["toy_model", "toy_service", "wire"]
