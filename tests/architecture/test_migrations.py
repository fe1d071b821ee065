"""The migrations form one line."""

from alembic.config import Config
from alembic.script import ScriptDirectory

from mitosis.app_root import app_root


def test_there_is_one_head_and_one_base() -> None:
    config = Config()
    config.set_main_option("script_location", str(app_root() / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1
