"""The migrations form one line, and lock out no claim for long."""

import hashlib
import io
import re
from types import ModuleType

import pytest
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory

from mitosis.app_root import app_root
from mitosis.store.pg.concurrently import LOCK_TIMEOUT

OF_THE_VERSION_BEFORE = ("0001", "0002", "0003")
"""No database in use is older than these."""
ALTER_MUCH_TOGETHER = ("0004", "0005", "0011")
"""They were released before the rule."""
CREATED_TABLE = re.compile(r"CREATE TABLE (\w+)")
ALTERED_TABLE = re.compile(r"(?:ALTER TABLE (?:ONLY )?|DELETE ON )(\w+)")
LONG = {
    "an index of a table in use is built CONCURRENTLY": re.compile(
        r"CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)\w+ ON (\w+)"
    ),
    "rows are checked apart from the change that asks for it": re.compile(
        r"ALTER TABLE (\w+)\s+VALIDATE CONSTRAINT"
    ),
}
"""What takes as long as a table is large."""
REPEATABLE = re.compile(
    r"((SET|RESET) (lock|statement)_timeout|CREATE (UNIQUE )?INDEX CONCURRENTLY \w+ ON"
    r"|DROP INDEX CONCURRENTLY IF EXISTS|ALTER TABLE \w+ VALIDATE CONSTRAINT|COMMIT|BEGIN)"
)


def migrations() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(app_root() / "migrations"))
    return ScriptDirectory.from_config(config)


def statements(module: ModuleType) -> list[str]:
    """What the migration would execute."""
    written = io.StringIO()
    options = {"as_sql": True, "output_buffer": written, "transactional_ddl": True}
    context = MigrationContext.configure(dialect_name="postgresql", opts=options)
    with Operations.context(context):
        module.upgrade()
    return [text.strip() for text in written.getvalue().split(";\n") if text.strip()]


DIGESTS = {
    "0001": "3fdb92a3b643",
    "0002": "5cd7dd42dca7",
    "0003": "73313777907d",
    "0004": "5022f3d596ed",
    "0005": "04a4d7fb407b",
    "0006": "919794783a57",
    "0006b": "9c80e74a297a",
    "0007": "d3d570bfbc36",
    "0008": "fc97d5082254",
    "0009": "2879fb8a2def",
    "0009b": "a5ab6e952a35",
    "0010": "3ea2a0d87921",
    "0011": "62ebca9b18a8",
    "0011b": "9e4ec859c228",
    "0011c": "e1812ee91a0a",
    "0012": "b510cfb5b93a",
    "0012b": "768935ce8f10",
    "0013": "8b0e6be44c58",
    "0014": "143c39fb76e7",
    "0014b": "1a16ce8feab2",
    "0015": "3227134f5456",
    "0015b": "cd5da81d71a5",
}
"""Of the statements of each released migration. It is never changed, as databases have executed it."""

LATER = {
    script.revision: statements(script.module)
    for script in migrations().walk_revisions()
    if script.revision not in OF_THE_VERSION_BEFORE
}


def test_there_is_one_head_and_one_base() -> None:
    script = migrations()
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


def test_a_released_migration_is_never_changed() -> None:
    """A database that has executed it would lack what the change adds, and no one would say so."""
    now = {
        script.revision: hashlib.sha256("".join(statements(script.module)).encode()).hexdigest()[
            :12
        ]
        for script in migrations().walk_revisions()
    }
    assert now == DIGESTS


def faults(revision: str) -> list[str]:
    """What would lock out claims, reports or submits for as long as a table is large."""
    made = LATER[revision]
    if all(REPEATABLE.match(text) for text in made):
        return []  # each has a transaction of its own, and can be executed again
    own = {match[1] for text in made for match in CREATED_TABLE.finditer(text)}
    return [
        f"{rule}: {match[0]}"
        for text in made
        for rule, pattern in LONG.items()
        for match in pattern.finditer(text)
        if match[1] not in own
    ]


@pytest.mark.parametrize("revision", sorted(LATER))
def test_tables_in_use_are_locked_for_a_moment_only(revision: str) -> None:
    assert faults(revision) == []


@pytest.mark.parametrize("revision", sorted(LATER))
def test_what_cannot_be_in_a_transaction_is_a_migration_of_its_own(revision: str) -> None:
    """It may be interrupted between two statements, and starts over."""
    if any("CONCURRENTLY" in text for text in LATER[revision]):
        assert [text for text in LATER[revision] if not REPEATABLE.match(text)] == []
        # Each waits for all open transactions, however long they take.
        assert [text for text in LATER[revision] if "lock_timeout" in text] == [
            "SET lock_timeout = 0",
            f"SET lock_timeout = '{LOCK_TIMEOUT}'",
        ]


def in_use_locked_together(made: list[str]) -> set[str]:
    """The tables in use that one migration alters: all stay locked while it waits for the last of them."""
    own = {match[1] for text in made for match in CREATED_TABLE.finditer(text)}
    return {match[1] for text in made for match in ALTERED_TABLE.finditer(text)} - own


def test_no_claim_waits_until_another_table_is_free() -> None:
    """Claims and reports need open_task: what is done to it locks nothing else."""
    together = {
        revision: tables
        for revision, made in LATER.items()
        if revision not in ALTER_MUCH_TOGETHER
        and not all(REPEATABLE.match(text) for text in made)
        and "open_task" in (tables := in_use_locked_together(made))
        and len(tables) > 1
    }
    assert together == {}
