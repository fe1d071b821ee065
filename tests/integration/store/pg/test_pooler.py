"""A transaction pooler before PostgreSQL: sessions (LISTEN, migrations) go to the server itself."""

from dataclasses import replace

import pytest
from pydantic import SecretStr

from api.service import ApiOptions, running_api
from mitosis.cli.stack.whole_stack import store_options
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.settings import DatabaseSettings, Settings
from mitosis.store.pg.migrate import migrate
from mitosis.store.store import StoreOptions
from tests.support.command import mitosis
from tests.support.http_api import NAMESPACE, NoTemporal

pytestmark = pytest.mark.new_sessions

NOWHERE = "postgresql://127.0.0.1:1/mitosis"


async def test_the_api_listens_at_the_server_and_asks_through_the_pooler(database: str) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=f"{database}&pgbouncer=1", direct_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
    )
    async with running_api(options, NoTemporal()) as running:
        assert running.url
    nowhere = replace(options, store=replace(options.store, direct_url=NOWHERE))
    with pytest.raises(DatabaseUnavailable):
        async with running_api(nowhere, NoTemporal()):
            pass
    settings = Settings(
        database=DatabaseSettings(url=SecretStr(database), direct_url=SecretStr(NOWHERE))
    )
    assert store_options(settings, database).direct_url == NOWHERE


@pytest.mark.usefixtures("no_stack_here")
def test_migrations_and_doctor_understand_the_address_of_a_pooler(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(f"{database}&pgbouncer=1")
    monkeypatch.setenv("MITOSIS_DATABASE_URL", f"{database}&pgbouncer=1")
    monkeypatch.setenv("MITOSIS_DATABASE__DIRECT_URL", NOWHERE)
    checks = {check["name"]: check for check in mitosis("doctor", "--json").json["checks"]}
    assert checks["database"]["state"] == "ok"
    assert checks["database, direct"]["state"] == "fail"
    assert "MITOSIS_DATABASE__DIRECT_URL" in checks["database, direct"]["advice"]
