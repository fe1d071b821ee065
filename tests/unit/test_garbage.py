"""The collector of a process that lives long."""

import gc

import pytest

from mitosis import garbage


def test_garbage_is_removed_before_the_rest_is_frozen_and_the_collector_stays_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "disable", lambda: calls.append("disable"))
    thresholds: list[int] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *given: thresholds.extend(given))
    garbage.settle()
    assert calls == ["collect", "freeze"]
    assert thresholds[0] > 700
    assert all(one > 0 for one in thresholds), "0 would switch it off"
