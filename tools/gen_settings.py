"""Write docs/reference/settings.md from the settings model; ``--check`` only compares."""

import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mitosis.settings import (  # noqa: E402 - after the path
    CONFIG_FILE_VARIABLE,
    PROGRAM_VARIABLES,
    SHORT_NAMES,
    Settings,
    environment_name,
)

PAGE = ROOT / "docs/reference/settings.md"
HEAD = f"""\
# Settings

Generated from `mitosis/settings.py` by `make docs`; do not edit.

A value comes from the command line, else the environment, else one TOML file, else it has its default.
The file is the one named by `--config` or `{CONFIG_FILE_VARIABLE}`, else `mitosis/config.toml` below
`$XDG_CONFIG_HOME` (`~/.config`) or `/etc`. An unknown key in the file, or in a `MITOSIS_<GROUP>__…`
variable, is an error that names it. Other variables that begin with `MITOSIS_` belong to hooks and tasks
and are ignored. `mitosis config show` prints every value and where it came from.

In the file a key such as `temporal.port` is written as `port = …` below `[temporal]`.
"""


def page() -> str:
    """The whole document."""
    blocks = [HEAD, *_blocks(), "## Programs\n", _table(("Variable", "Meaning"), _programs())]
    return "\n".join(blocks)


def _blocks() -> Iterator[str]:
    top = {n: f for n, f in Settings.model_fields.items() if _group(f) is None}
    yield "## General\n"
    yield _settings_table("", top, {})
    for name, field in Settings.model_fields.items():
        if group := _group(field):
            yield f"## {name}\n\n{(group.__doc__ or '').strip()}\n"
            yield _settings_table(
                f"{name}.", group.model_fields, group.model_json_schema()["properties"]
            )


def _group(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _settings_table(
    prefix: str, fields: dict[str, FieldInfo], schemas: dict[str, dict[str, typing.Any]]
) -> str:
    short = {key: name for name, key in SHORT_NAMES.items()}
    rows: list[tuple[str, ...]] = [
        (
            f"`{prefix}{name}`",
            f"`{short.get(prefix + name) or environment_name(prefix + name)}`",
            _kind(field.annotation),
            _range(schemas.get(name, {})),
            _default(field.default),
            field.description or "",
        )
        for name, field in fields.items()
    ]
    return _table(("Key", "Environment", "Type", "Range", "Default", "Meaning"), rows)


def _programs() -> list[tuple[str, ...]]:
    return [(f"`{name}`", meaning) for name, meaning in PROGRAM_VARIABLES.items()]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _kind(annotation: object) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _kind(next(a for a in arguments if a is not type(None)))
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return "list of texts"
    names = {
        "str": "text",
        "Path": "path",
        "int": "number",
        "float": "number",
        "bool": "yes or no",
        "SecretStr": "secret",
    }
    return names[getattr(annotation, "__name__", "")]


def _range(schema: dict[str, typing.Any]) -> str:
    for given in (schema, *schema.get("anyOf", ())):
        if "minimum" in given:
            return f"{int(given['minimum']):,} to {int(given['maximum']):,}"
    return ""


def _default(value: object) -> str:
    if value is None or value == ():
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def main() -> int:
    """Write the page, or with ``--check`` say whether it is as it would be written."""
    fresh = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == fresh:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not what tools/gen_settings.py writes")
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
