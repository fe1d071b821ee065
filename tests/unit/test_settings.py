import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from mitosis.cli.stack.whole_stack import store_options
from mitosis.settings import (
    SHORT_NAMES,
    Settings,
    SettingsError,
    environment_name,
    flatten,
    load_settings,
)
from mitosis.store.store import QueueLimits


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "mitosis.toml"
        path.write_text(text)
        return path

    return write


def test_defaults_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_TEMPORAL__NAMESPACE", "other")
    assert Settings().temporal.namespace == "mitosis"


def test_command_line_wins_over_environment_wins_over_file(
    monkeypatch: pytest.MonkeyPatch, config_file: Callable[[str], Path]
) -> None:
    path = config_file('[api]\nhost = "1.1.1.1"\nport = 1\n[temporal]\nport = 11\n')
    monkeypatch.setenv("MITOSIS_API__PORT", "2")
    monkeypatch.setenv("MITOSIS_TEMPORAL__PORT", "12")
    loaded = load_settings({"temporal.port": 13, "api.url": None}, path)
    assert loaded.settings.api.host == "1.1.1.1"
    assert loaded.settings.api.port == 2
    assert loaded.settings.temporal.port == 13
    assert loaded.origins == {
        "api.host": f"file {path}",
        "api.port": "MITOSIS_API__PORT",
        "temporal.port": "command line",
    }


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_short_names_win_over_long_ones(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    long = "MITOSIS_" + SHORT_NAMES[name].upper().replace(".", "__")
    monkeypatch.setenv(long, "long")
    monkeypatch.setenv(name, "short")
    loaded = load_settings()
    value = flatten(loaded.settings.model_dump())[SHORT_NAMES[name]]
    assert str(getattr(value, "get_secret_value", lambda: value)()) == "short"
    assert loaded.origins[SHORT_NAMES[name]] == name


def test_keys_of_the_version_before_have_the_same_effect(
    monkeypatch: pytest.MonkeyPatch, config_file: Callable[[str], Path]
) -> None:
    path = config_file("[worker]\nmax_cached_workflows = 7\nmax_concurrent_activities = 8")
    control = load_settings(config_file=path).settings.control
    assert (control.max_cached_workflows, control.max_concurrent_activities) == (7, 8)
    monkeypatch.setenv("MITOSIS_WORKER__MAX_CACHED_WORKFLOWS", "9")
    loaded = load_settings(config_file=path)
    assert loaded.settings.control.max_cached_workflows == 9
    assert loaded.origins["control.max_cached_workflows"] == "MITOSIS_WORKER__MAX_CACHED_WORKFLOWS"
    monkeypatch.setenv("MITOSIS_CONTROL__MAX_CACHED_WORKFLOWS", "10")
    assert load_settings(config_file=path).settings.control.max_cached_workflows == 10
    both = config_file("[worker]\nmax_cached_workflows = 7\n[control]\nmax_cached_workflows = 6")
    monkeypatch.delenv("MITOSIS_WORKER__MAX_CACHED_WORKFLOWS")
    monkeypatch.delenv("MITOSIS_CONTROL__MAX_CACHED_WORKFLOWS")
    assert load_settings(config_file=both).settings.control.max_cached_workflows == 6


def test_variables_of_tasks_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MITOSIS_TASK_UUID", "MITOSIS_WORKER_ID", "MITOSIS_RESULT_DIR", "MITOSIS_WORKER"):
        monkeypatch.setenv(name, "x")
    assert load_settings().settings == Settings()


@pytest.mark.parametrize(
    ("text", "key"),
    [("[api]\nprot = 1", "api.prot"), ("[apj]\nport = 1", "apj"), ("colour = 1", "colour")],
)
def test_unknown_key_of_a_file_is_an_error_that_names_it(
    config_file: Callable[[str], Path], text: str, key: str
) -> None:
    path = config_file(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(config_file=path)
    assert str(caught.value) == f"{key} (file {path}): unknown setting"


def test_typing_error_in_a_nested_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_API__PROT", "1")
    with pytest.raises(SettingsError, match=r"^api\.prot \(MITOSIS_API__PROT\): unknown setting$"):
        load_settings()


def test_invalid_value_names_key_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_API__PORT", "70000")
    with pytest.raises(SettingsError, match=r"api\.port \(MITOSIS_API__PORT\): .*65535"):
        load_settings()


def test_an_invalid_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_DATABASE__POOL_SIZE", "geheim")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "geheim" not in str(caught.value)


def numbers() -> Iterator[tuple[str, float, float]]:
    """Yield each setting that is a number, with its least and greatest value."""
    for group, default in Settings():
        if isinstance(default, BaseModel):
            for name, schema in type(default).model_json_schema()["properties"].items():
                for kind in schema.get("anyOf", (schema,)):
                    if kind.get("type") in ("number", "integer"):
                        yield f"{group}.{name}", kind["minimum"], kind["maximum"]


@pytest.mark.parametrize(("key", "least", "greatest"), [*numbers()], ids=str)
def test_a_number_out_of_its_range_is_refused_by_its_key(
    key: str, least: float, greatest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("inf", "nan", "1e300", "-1", str(int(least) - 1), str(int(greatest) + 1)):
        monkeypatch.setenv(environment_name(key), wrong)
        with pytest.raises(SettingsError, match=rf"^{key} \({environment_name(key)}\): Input"):
            load_settings()


@pytest.mark.parametrize("largest", [True, False])
def test_all_numbers_at_their_bounds_can_be_used(largest: bool) -> None:
    bounds = {key: greatest if largest else least for key, least, greatest in numbers()}
    settings = load_settings(bounds).settings
    terms = store_options(settings, "postgresql://h/d").lease_terms
    assert terms.shown().values()["longest_lease"] == bounds["scheduling.longest_lease_seconds"]


def test_missing_and_broken_file_are_clear(config_file: Callable[[str], Path]) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file /nowhere\.toml"):
        load_settings(config_file=Path("/nowhere.toml"))
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(config_file=config_file("[["))


def test_shown_lines_hide_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_DATABASE_URL", "postgresql://me:geheim@db/x")
    loaded = load_settings()
    shown = {key: (value, origin) for key, value, origin in loaded.lines()}
    assert shown["database.url"] == ("**********", "MITOSIS_DATABASE_URL")
    assert shown["temporal.namespace"] == ("mitosis", "default")
    assert "geheim" not in repr(loaded) + str(loaded.settings.model_dump_json())


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.api.__setattr__("port", 1)


def test_tags_of_an_agent_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_AGENT__TAGS", "gpu, big ,")
    assert load_settings().settings.agent.tags == ("gpu", "big")


def test_bounds_of_leases_are_checked_together() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"scheduling.longest_lease_seconds": 60})
    assert str(refused.value) == (
        "scheduling.lease_duration_seconds = 3600 (default),"
        " scheduling.longest_lease_seconds = 60 (command line): the first must be at most the second"
    )
    terms = load_settings({"scheduling.longest_idle_seconds": 3}).settings.scheduling.lease_terms(5)
    assert (terms.idle_threshold, terms.longest_idle) == (3, 3)


def test_a_time_of_starvation_below_the_idle_threshold_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"599 \(command.*longest_idle.* at least the second"):
        load_settings({"scheduling.starve_after_seconds": 599})
    never = load_settings({"scheduling.starve_after_seconds": 0}).settings
    options = store_options(never, "postgresql://h/d")
    assert options.starve_after == timedelta(0)


def test_the_rules_of_scheduling_reach_the_store() -> None:
    given = {"preemption_grace_seconds": 7, "moves_per_hour": 3, "starve_after_seconds": 7200}
    settings = load_settings(
        {f"scheduling.{name}": value for name, value in given.items()}
    ).settings
    options = store_options(settings, "postgresql://h/d")
    assert options.lease_terms.preemption_grace == 7
    assert (options.moves_per_hour, options.starve_after) == (3, timedelta(hours=2))


@pytest.mark.parametrize(
    "text",
    [
        'tls = "files"\ntls_key_file = "k"',
        'tls = "files"\ntls_certificate_file = "c"',
        'tls = "files"',
        'tls = "own"\ntls_certificate_file = "c"\ntls_key_file = "k"',
        'tls_key_file = "k"',
    ],
)
def test_certificate_and_key_are_both_needed_by_files_and_by_nothing_else(
    config_file: Callable[[str], Path], text: str
) -> None:
    path = config_file(f"[api]\n{text}\n")
    with pytest.raises(SettingsError, match="certificate") as refused:
        load_settings(config_file=path)
    for name in ("tls", "tls_certificate_file", "tls_key_file"):
        given = re.search(rf'^{name} = "(\w+)"$', text, re.MULTILINE)
        shown = f"{given[1]} (file {path})" if given else "none (default)"
        assert f"api.{name} = {shown if given or name != 'tls' else 'off (default)'}" in str(
            refused.value
        )


def test_further_names_of_the_certificate_are_words_with_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MITOSIS_API__TLS_NAMES", "api, api.test,192.0.2.7")
    assert load_settings().settings.api.tls_names == ("api", "api.test", "192.0.2.7")


def test_a_task_group_may_have_ten_million_unfinished_tasks() -> None:
    limits = store_options(Settings(), "postgresql:///none").queue_limits
    assert limits == QueueLimits(), "a store without settings refuses at the same sizes"
    assert 10_000_000 == limits.per_group <= limits.per_user <= limits.total
