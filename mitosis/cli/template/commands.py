"""`mitosis template …`: saves, lists, shows and deletes templates of task groups."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.group.create import option_names, typed_fields
from mitosis.cli.group.options import GroupOptions
from mitosis.cli.input_files import read_json_object
from mitosis.cli.references import check_reference
from mitosis.cli.registration import register
from mitosis.cli.rendering import Item, Table, time_text
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.contracts.templates import TemplateInfo

app = plain_app()

TemplateArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE",
        help="Id, NAME or USERGROUP/NAME of the template.",
        callback=check_reference,
    ),
]


@app.callback()
def template() -> None:
    """Save task groups as templates; `mitosis group create --template` uses them."""


@register(app, "save")
def save(
    cli: Cli,
    options: GroupOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the template.")],
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The task group as JSON (- = stdin); options override it."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="GROUP", help="Save this task group; no other options."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the template of this name.")
    ] = False,
) -> None:
    """Save a template, from options and a file, or from a task group."""
    from mitosis.cli.validation import named
    from mitosis.contracts.templates import checked_spec, merged

    typed = typed_fields(None, options)
    user_group = typed.pop("group_name", None)
    if source is not None and (typed or spec):
        raise InvalidRequest("takes everything from the task group", option="--from")
    given = None
    names = {
        f"spec.{field}": option for field, option in option_names(options, typed, spec).items()
    }
    with named(names | {"name": "NAME"}):
        if source is None:
            read = read_json_object(spec, "--spec") if spec else {}
            given = merged(read, typed)
            checked_spec(given, "spec")
    with named(names | {"name": "NAME"}), cli.client() as client:
        saved = client.save_template(
            name, given, task_group=source, group_name=user_group, replace=replace
        )
    cli.output.item(template_item(saved))
    cli.output.note(f"\nnext: mitosis group create NAME --template {saved.name}")


@register(app, "list")
def list_templates(cli: Cli, limit: LimitOption = None) -> None:
    """List the templates of your user groups."""
    with cli.client() as client:
        cli.output.table(templates_table(cli.take(client.templates(), limit)))


@register(app, "show")
def show(cli: Cli, template: TemplateArgument) -> None:
    """Show one template."""
    with cli.client() as client:
        cli.output.item(template_item(client.template(template)))


@register(app, "delete")
def delete(cli: Cli, template: TemplateArgument) -> None:
    """Delete a template; task groups that were made of it stay."""
    with cli.client() as client:
        client.delete_template(template)
    cli.output.item(Item({"deleted": template}, [("deleted", template)], template))


def templates_table(templates: "Sequence[TemplateInfo]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in templates],
        columns=("template", "user group", "saved by", "saved", "id"),
        rows=[
            (
                one.name,
                one.group_name,
                one.created_by,
                time_text(one.updated_at),
                str(one.template_id),
            )
            for one in templates
        ],
        ids=[str(one.template_id) for one in templates],
        empty="no templates (save one with: mitosis template save NAME --from GROUP)",
    )


def template_item(one: "TemplateInfo") -> Item:
    fields = [
        ("template", one.name),
        ("id", str(one.template_id)),
        ("user group", one.group_name),
        ("saved by", one.created_by),
        ("saved", time_text(one.updated_at)),
        *[(field, json.dumps(value)) for field, value in sorted(one.spec.items())],
    ]
    return Item(one.model_dump(mode="json"), fields, str(one.template_id))
