"""No statement is left out where all of them are tried, as in ``make campaign-plans``."""

from tests.support.statements import COMPOSED, PARTS, all_statements, composing, forgotten


def test_every_statement_of_an_sql_file_is_found() -> None:
    assert forgotten() == []
    assert len(all_statements()) > 500


def test_every_function_that_composes_statements_is_listed() -> None:
    assert composing() == COMPOSED.keys() | PARTS
