"""The application packages are found, in a checkout, beside the ``mitosis`` package."""

import sys

from mitosis.app_root import app_root, enter_app


def test_app_root_holds_the_application_packages() -> None:
    for package in ("workflows", "activities", "manager_agent", "api", "migrations"):
        assert (app_root() / package).is_dir(), package


def test_enter_app_puts_the_root_first_once(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    enter_app()
    enter_app()
    assert sys.path == [str(app_root()), "/elsewhere"]
