"""Which token a worker service registers with, and the incarnation of each of its processes."""

import errno
from datetime import timedelta
from pathlib import Path

import pytest

from mitosis.concurrency import race
from mitosis.contracts.errors import Unauthenticated
from mitosis.execution.identity import read_incarnation
from mitosis.worker_service.registration import read_own_token
from tests.support.service_answers import (
    AWAY,
    UNAUTHENTICATED,
    Answers,
    parts_of,
    registered,
)
from tests.support.waiting import wait_until_async


async def test_the_first_process_uses_the_token_of_a_user_and_the_next_its_own(
    tmp_path: Path,
) -> None:
    first = Answers(workers=[AWAY, registered(1)])
    async with parts_of(first, tmp_path, groups=("lab:write",)) as it:
        await it.registration.begin()
    assert first.tokens == ["of a user"] * 2
    assert first.sent["workers"][0]["groups"] == ["lab:write"]
    assert read_own_token(tmp_path) == "own-1"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    second = Answers(workers=[registered(2, incarnation=6)])
    async with parts_of(second, tmp_path, token=None) as it:
        await it.registration.begin()
    assert second.tokens == ["own-1"]
    assert "groups" not in second.sent["workers"][0]


async def test_a_later_start_with_the_same_groups_needs_no_user(tmp_path: Path) -> None:
    for groups, number, tokens in [
        (("lab:write", "ops"), 1, ["of a user"]),
        (("ops", "lab:write"), 2, ["own-1"]),
        (("lab", "ops:write", "lab"), 2, ["own-2"]),
        (("ops",), 3, ["of a user"]),
        (("ops",), 4, ["own-3"]),
    ]:
        answers = Answers(workers=[registered(number)])
        async with parts_of(answers, tmp_path, groups=groups) as it:
            await it.registration.begin()
        assert answers.tokens == tokens
        sent = answers.sent["workers"][0].get("groups")
        assert sent == (list(groups) if tokens == ["of a user"] else None)


async def test_other_groups_without_a_user_say_what_is_needed_and_unknown_ones_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("own")
    answers = Answers(workers=[registered(1)])
    async with parts_of(answers, tmp_path, token=None, groups=("lab",)) as it:
        await it.registration.begin()
    assert answers.tokens == ["own"], "of a version that did not note them"
    (tmp_path / "groups").write_text("lab")
    async with parts_of(Answers(), tmp_path, token=None, groups=("ops",)) as it:
        with pytest.raises(Unauthenticated, match="--group"):
            await it.registration.begin()


async def test_each_process_has_a_larger_incarnation_that_is_on_disk_before_it_is_used(
    tmp_path: Path,
) -> None:
    for number in (1, 2):
        before = read_incarnation(tmp_path)
        answers = Answers(workers=[registered(number)])
        async with parts_of(answers, tmp_path) as it:
            await it.registration.begin()
        assert answers.sent["workers"][0]["incarnation"] == read_incarnation(tmp_path) > before


async def test_a_refused_own_token_is_replaced_by_that_of_the_user_if_there_is_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("old")
    answers = Answers(workers=[UNAUTHENTICATED, registered(1)])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
    assert answers.tokens == ["old", "of a user"]
    (tmp_path / "token").write_text("old")
    async with parts_of(Answers(workers=[UNAUTHENTICATED]), tmp_path, token=None) as it:
        with pytest.raises(Unauthenticated):
            await it.registration.begin()


async def test_only_the_first_call_of_a_process_takes_the_id_over(tmp_path: Path) -> None:
    answers = Answers(workers=[registered(1, incarnation=2**62), registered(2, incarnation=2**62)])
    async with parts_of(answers, tmp_path, take_over=True) as it:
        await it.registration.begin()
        await it.registration.again(1)
    assert [one["take_over"] for one in answers.sent["workers"]] == [True, False]
    assert read_incarnation(tmp_path) == answers.sent["workers"][1]["incarnation"] == 2**62


async def test_a_registration_that_starts_over_gives_back_what_is_held_and_says_why(
    tmp_path: Path,
) -> None:
    answers = Answers(workers=[registered(1), registered(2)], goodbye=[(204, {})])
    async with parts_of(answers, tmp_path) as it:
        await it.registration.begin()
        await it.registration.start_over("no process:\n\x1b[1mfull" + "x" * 2000)
        assert it.registration.registration_id == 2
    (goodbye,) = answers.sent["goodbye"]
    assert goodbye["reason"].startswith("no process:  [1mfull")
    first, second = answers.sent["workers"]
    assert first["incarnation"] == second["incarnation"] == goodbye["incarnation"]


async def test_a_full_disk_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", f"{path}: {len(data)}")

    monkeypatch.setattr("mitosis.worker_service.registration.write_durably", full)
    answers = Answers(workers=[registered(1), registered(2)])
    async with parts_of(answers, tmp_path, groups=("lab",)) as it:
        await it.registration.begin()
        await it.registration.again(1)
    assert answers.tokens == ["of a user", "own-1"], "the new one is used"
    said = [vars(one)["file"] for one in caplog.records if one.getMessage() == "state.not_kept"]
    assert said == ["token", "groups", "token"]


async def test_the_first_start_without_a_token_says_what_is_needed(tmp_path: Path) -> None:
    async with parts_of(Answers(), tmp_path, token=None) as it:
        with pytest.raises(Unauthenticated, match="mitosis login"):
            await it.registration.begin()


async def test_the_token_is_renewed_before_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.worker_service.registration.EARLIEST_RENEWAL_SECONDS", 0.0)
    soon = {"token": "next", "expires_at": "2020-01-01T00:00:00Z"}
    later = {"token": "last", "expires_at": "2090-01-01T00:00:00Z"}
    status, body = registered(1)
    first = (status, {**body, "expires_at": "2020-01-01T00:00:00Z"})
    answers = Answers(workers=[first], token=[(200, soon), AWAY, (200, later)])
    async with parts_of(answers, tmp_path, token_lifetime=timedelta(days=2)) as it:
        await it.registration.begin()
        kept = wait_until_async(
            lambda: read_own_token(tmp_path) == "last", on_timeout="the token was not renewed"
        )
        await race(kept, it.registration.keep_token())
    assert answers.tokens == ["of a user", "own-1", "next", "next"]
    assert answers.sent["token"][0] == {"lifetime": 172800.0}
