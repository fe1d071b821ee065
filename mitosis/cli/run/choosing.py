"""Finds the command and the inputs in a command line of `mitosis run`, and checks that they fit together."""

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from mitosis.cli.run.options import RunInputs
from mitosis.cli.run.sources import (
    LIST_OPENINGS,
    VALUES,
    Source,
    from_csv,
    from_json,
    from_lines,
    from_lists,
    from_range,
    from_values,
    in_batches,
    no_source,
    open_file,
    split_columns,
    stdin_is_given,
)
from mitosis.cli.run.template import Template, shell_quoted, with_placeholder
from mitosis.contracts.errors import InvalidRequest

FILES = "::::"


def choose(inputs: RunInputs) -> tuple[Template, Source]:
    """Return the command and its inputs.

    Raises:
        InvalidRequest: there is more than one source, it cannot be read, or it does not fit the command.
    """
    command = inputs.command
    _check_words(inputs)
    needs_inputs = Template.parse(
        command, through_shell=inputs.shell, placeholder=inputs.replace
    ).has_placeholders
    if inputs.batch is not None and inputs.batch < 1:
        raise InvalidRequest("must be 1 or more", option="--batch")
    source = _source(inputs, needs_inputs=needs_inputs)
    if source is not None and inputs.colsep is not None:
        source = split_columns(source, inputs.colsep)
    if source is not None and inputs.batch is not None:
        source = in_batches(source, inputs.batch)
    template = Template.parse(
        command,
        source.columns if source else (),
        through_shell=inputs.shell,
        placeholder=inputs.replace,
    )
    if inputs.batch is not None:
        template.check_batches()
    return template, _fitting(template, source, inputs)


def _check_words(inputs: RunInputs) -> None:
    """Refuse spellings of GNU parallel and shells, with a hint how to write them here."""
    command = inputs.command
    if FILES in command:
        at = command.index(FILES)
        file = shell_quoted(command[at + 1]) if command[at + 1 :] else "FILE"
        line = " ".join(map(shell_quoted, command[:at]))
        raise InvalidRequest(
            f"{FILES} is not supported", hint=f"write: mitosis run --file {file} {line}"
        )
    if len(command) == 1 and not inputs.shell and not command[0].startswith("/"):
        words = command[0].split()
        if len(words) > 1:
            tail = "".join(f" {shell_quoted(word)}" for word in inputs.value_words)
            raise InvalidRequest(
                f"{command[0]!r} is one word, and not the name of a program",
                hint=f"without quotes: mitosis run {command[0]}{tail}\n"
                f"  as a shell line: mitosis run --shell {shell_quoted(command[0])}{tail}",
            )


def _source(inputs: RunInputs, *, needs_inputs: bool) -> Source | None:
    """Return the source of inputs, or None without one."""
    named: dict[str, Any] = {
        VALUES: inputs.value_words or None,
        "--file": inputs.file,
        "--range": inputs.numbers,
        "--from-json": inputs.json_file,
        "--from-csv": inputs.csv_file,
    }
    present = {option: value for option, value in named.items() if value is not None}
    if len(present) > 1:
        raise InvalidRequest(f"give only one source of inputs, not {' and '.join(present)}")
    for option, value in present.items():
        return _opened(option, value, nul=inputs.null)
    if inputs.colsep is not None or inputs.batch is not None or inputs.null:
        needs_inputs = True
    return (
        from_lines(sys.stdin.buffer, nul=inputs.null)
        if stdin_is_given(needed=needs_inputs)
        else None
    )


def _opened(option: str, value: Any, *, nul: bool) -> Source:
    match option:
        case ":::":
            lists = _lists(value)
            for opening, values in lists:
                if not values:
                    raise InvalidRequest(f"there are no values after {opening}")
            return from_values(lists[0][1]) if len(lists) == 1 else from_lists(lists)
        case "--range":
            return from_range(value)
        case "--from-json":
            return from_json(open_file(value, option))
        case "--from-csv":
            return from_csv(open_file(value, option))
        case _:
            return from_lines(open_file(value, option), nul=nul)


def _lists(tail: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split ``::: a b ::: c`` into lists, each with the word before it."""
    lists: list[tuple[str, list[str]]] = []
    for opening, words in groupby(tail, key=lambda word: word in LIST_OPENINGS):
        found = list(words)
        if opening:
            lists += [(word, []) for word in found]
        else:
            lists[-1][1].extend(found)
    return lists


def _fitting(template: Template, source: Source | None, inputs: RunInputs) -> Source:
    """Check that the command has placeholders exactly if there are inputs; return the source.

    Raises:
        InvalidRequest: with the with_placeholder command line as a hint.
    """
    if source is None:
        if template.has_placeholders:
            raise InvalidRequest(
                "the command has a placeholder, but there are no inputs",
                hint="add inputs: ::: VALUE..., --file FILE, --range 1-10, or a pipe",
            )
        return no_source()
    if not template.has_placeholders:
        _check_unfilled(template, source, inputs)
        right = (
            with_placeholder(inputs.command, inputs.value_words)
            if len(source.columns) < 2 or not inputs.value_words
            else " ".join(
                [
                    *map(shell_quoted, inputs.command),
                    "{1} {2}",
                    *map(shell_quoted, inputs.value_words),
                ]
            )
        )
        shell = "--shell " if inputs.shell else ""
        raise InvalidRequest(
            "there are inputs, but the command has no placeholder for them",
            hint=f"add the placeholder: mitosis run {shell}{right}",
        )
    return source


def _check_unfilled(template: Template, source: Source, inputs: RunInputs) -> None:
    """Refuse placeholders of columns if the inputs have no columns.

    Raises:
        InvalidRequest: names the placeholder.
    """
    if source.columns:
        return
    for text, name in template.unfilled():
        if name.isdigit():
            raise InvalidRequest(
                f"{text} names no list: the only list is {{}}",
                hint="several lists (::: a b ::: 1 2) and the columns of --colsep have numbers, from 1",
            )
        if inputs.json_file is not None and source.count:
            where = "standard input" if str(inputs.json_file) == "-" else inputs.json_file
            raise InvalidRequest(
                f"entry 1 of {where} has no key {name!r} for {text}", option="--from-json"
            )
