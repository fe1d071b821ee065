"""Write docs/reference/cli.md from the commands themselves; ``--check`` only compares."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import typer  # noqa: E402 - after the path

from mitosis.cli import app  # noqa: E402
from tools.pages import run_generator, table  # noqa: E402

PAGE = ROOT / "docs/reference/cli.md"
COMMON = ("--api", "--token-file", "--data-dir", "--json", "--quiet")
HEAD = """\
# Command line

Generated from `mitosis/cli` by `make docs`; do not edit. `mitosis COMMAND --help` says the same.

Times are seconds or text such as `90s`, `10m`, `1h30m`, `2d`. Every command ends with one of the
[exit statuses](errors.md#exit-statuses-of-mitosis).

## Options of every command that speaks to the API
"""


def page() -> str:
    """The whole document."""
    root: Any = typer.main.get_command(app)
    context = root.context_class(root, info_name="mitosis")
    leaves = list(_leaves(root, context))
    common = next(command for command, _ in leaves if _is_api_command(command))
    shared = [_row(one, context) for one in common.params if _is_common(one)]
    return "\n".join([HEAD, table(("Option", "Meaning"), shared), *map(_section, leaves)])


def _leaves(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            if command.params:  # it does something by itself
                yield command, inner
            yield from _leaves(command, inner)
        else:
            yield command, inner


def _is_api_command(command: Any) -> bool:
    return {"--api", "--json"} <= {opt for one in command.params for opt in one.opts}


def _section(leaf: tuple[Any, Any]) -> str:
    command, context = leaf
    own = [one for one in command.params if not getattr(one, "hidden", False)]
    if _is_api_command(command):
        own = [one for one in own if not _is_common(one)]
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}\n", f"```text\n{usage}\n```\n", f"{_help(command)}\n"]
    if own:
        parts.append(table(("Option or argument", "Meaning"), [_row(one, context) for one in own]))
    return "\n".join(parts)


def _is_common(one: Any) -> bool:
    return one.opts[0] in COMMON


def _help(command: Any) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _row(one: Any, context: Any) -> tuple[str, str]:
    if one.param_type_name == "argument":
        return f"`{one.metavar or one.name.upper()}`", one.help or ""
    names = ", ".join(f"`{opt}`" for opt in [*one.opts, *one.secondary_opts])
    value = "" if one.is_flag else f" {_value(one, context)}"
    default = "" if one.default in (None, False, ()) else f" Default: `{one.default}`."
    return f"{names}{value}", f"{one.help or ''}{default}"


def _value(one: Any, context: Any) -> str:
    """What stands for the value: ``FILE``, or the choices, or the type."""
    shown = str(one.metavar or one.display_type(context))
    listed = re.sub(r"^list\[(.*)\]$", r"\1", shown.strip("<>"))
    return f"`{listed}`"


if __name__ == "__main__":
    sys.exit(run_generator(PAGE, page()))
