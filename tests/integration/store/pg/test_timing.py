"""Statements are measured where their time is spent."""

import psycopg
import pytest

from mitosis.store.pg.database import Database
from mitosis.store.pg.timing import OTHER, statement_name
from mitosis.store.registry.figures import CHURN, COVERAGE


async def test_each_statement_is_observed_once_with_its_seconds(database: str) -> None:
    seen: list[tuple[str, float]] = []
    async with Database.open(database, observe=lambda *one: seen.append(one)) as opened:
        seen.clear()
        async with opened.transaction() as connection:
            await connection.execute("/* folder/file.sql slow */ SELECT pg_sleep(0.05)")
            await connection.execute(b"SELECT 1")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.execute("/* folder/file.sql failed */ SELECT 1 / 0")
            names = [name for name, _ in seen]
    assert names == ["folder/file.sql slow", OTHER, "folder/file.sql failed"]
    assert seen[0][1] >= 0.05


async def test_statements_of_a_pipeline_are_not_observed(database: str) -> None:
    seen: list[str] = []
    async with Database.open(database, observe=lambda name, _: seen.append(name)) as opened:
        seen.clear()
        async with opened.pipelined_transaction() as connection:
            cursor = await connection.execute("/* folder/file.sql piped */ SELECT 1 AS one")
        assert await cursor.fetchone() == {"one": 1}
    assert "folder/file.sql piped" not in seen


def test_a_statement_that_is_made_of_several_has_the_name_of_the_first() -> None:
    assert statement_name(CHURN) == "registry/figures.sql churn"
    assert statement_name(COVERAGE) == "registry/figures.sql coverage"
    assert statement_name("SELECT 1") == OTHER
