"""Bring a database to the schema of this version. Safe when several processes start at once."""

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError, PendingRollbackError

from mitosis.app_root import app_root
from mitosis.contracts.errors import ConfigurationError, DatabaseUnavailable
from mitosis.store.pg.database import split_url


def migrate(database_url: str, revision: str = "head") -> None:
    """Upgrade to ``revision``; does nothing when the database is there already.

    Needs a direct connection (a session advisory lock does not survive a transaction pooler).

    Raises:
        DatabaseUnavailable: it cannot be reached.
        ConfigurationError: the URL is not one of PostgreSQL.
    """
    config = _config()
    config.attributes["url"] = _sqlalchemy_url(database_url)
    try:
        command.upgrade(config, revision)
    except OperationalError as error:
        raise DatabaseUnavailable(f"cannot migrate the database: {error.orig}") from error
    except PendingRollbackError as error:
        raise DatabaseUnavailable(
            "the connection to the database ended during a migration; run `mitosis migrate` again"
        ) from error


def head_revision() -> str:
    """Return the revision that this version of the code expects."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise ConfigurationError("this installation has no migrations; install Mitosis again")
    return head


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(app_root() / "migrations").replace("%", "%%"))
    return config


def _sqlalchemy_url(database_url: str) -> str:
    url = make_url(split_url(database_url)[0])
    if url.get_backend_name() != "postgresql":
        raise ConfigurationError("MITOSIS_DATABASE_URL must start with postgresql://")
    return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
