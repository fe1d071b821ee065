"""Settings of Mitosis, some of them secrets, are not inherited by what it starts."""

from mitosis.contracts.variables import without_settings


def test_settings_and_further_prefixes_are_left_out() -> None:
    variables = {"PATH": "/bin", "MITOSIS_TOKEN": "secret", "PGPORT": "1", "MITOSIS": "kept"}
    assert without_settings(variables) == {"PATH": "/bin", "PGPORT": "1", "MITOSIS": "kept"}
    assert without_settings(variables, "PG") == {"PATH": "/bin", "MITOSIS": "kept"}
