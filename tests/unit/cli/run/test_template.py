"""Placeholders become argv elements, whatever the values hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.cli.run.template import Item, Template, with_placeholder
from mitosis.contracts.errors import InvalidRequest

NASTY = ["a b", "it's", '"', "$(rm -rf /)", "a\nb", "\udcff\udcfe", "-n", "{}", "*", "", "\\"]


def argv(*words: str, value: str = "dir/a.tar.gz", number: int = 7, **columns: str) -> list[str]:
    return Template.parse(words, columns).argv(Item(value, number, columns))


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{}", "dir/a.tar.gz"),
        ("{.}", "dir/a.tar"),
        ("{/}", "a.tar.gz"),
        ("{//}", "dir"),
        ("{/.}", "a.tar"),
        ("{#}", "7"),
        ("out/{/.}.{#}", "out/a.tar.7"),
        ("{{}}", "{}"),
        ("{print $1}", "{print $1}"),
        ("{name}", "{name}"),
        ("--x={}{}", "--x=dir/a.tar.gzdir/a.tar.gz"),
    ],
)
def test_a_placeholder_is_filled(word: str, filled: str) -> None:
    assert argv("tool", word) == ["tool", filled]


def test_a_value_without_a_folder_is_in_the_present_one() -> None:
    assert argv("tool", "{//}", value="a.txt") == ["tool", "."]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_stays_one_element_and_is_not_looked_into(value: str) -> None:
    assert argv("tool", "{}", "x{}y", value=value) == ["tool", value, f"x{value}y"]


def test_columns_are_filled_by_name_and_unknown_ones_are_refused() -> None:
    assert argv("tool", "{host}:{port}", host="h", port="80") == ["tool", "h:80"]
    with pytest.raises(
        InvalidRequest, match=r"\{hots\} names no column; the columns are host, port"
    ):
        argv("tool", "{hots}", host="h", port="80")
    assert argv("tool", "{{hots}}", host="h") == ["tool", "{hots}"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_with_a_shell_the_value_is_no_part_of_the_line(value: str) -> None:
    line = Template.parse(["printf", "%s", "{}", "|", "cat"], through_shell=True).argv(
        Item(value, 1)
    )
    assert line == ["sh", "-c", 'printf %s "${1}" | cat', "sh", value]


def test_a_placeholder_in_single_quotes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be in quotes") as refused:
        Template.parse(["awk '{ print \"{}\" }'"], through_shell=True)
    assert "x={}" in str(refused.value.facts["hint"])


@pytest.mark.parametrize("start", ["cat <<E\n", "cat <<-'E'\n", "cat <<E | wc\na "])
def test_a_placeholder_in_a_here_document_is_refused(start: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be in a here-document"):
        Template.parse([f"{start}{{}}\nE"], through_shell=True)


@pytest.mark.parametrize(
    "script",
    ["x={}; cat <<E\n$x\nE", "cat <<E - {}\na\nE", "cat <<<x\necho {}", "echo $((1<<2))\necho {}"],
)
def test_beside_a_here_document_a_placeholder_may_stand(script: str) -> None:
    assert Template.parse([script], through_shell=True).has_placeholders


def test_placeholders_are_noticed() -> None:
    assert Template.parse(["a", "{}"]).has_placeholders
    assert Template.parse(["a", "x{#}"]).has_placeholders
    assert not Template.parse(["awk", "{print $1}", "{{}}"]).has_placeholders
    assert Template.parse(["a", "{n}"], ["n"]).has_placeholders


def test_the_correction_can_be_typed() -> None:
    assert with_placeholder(["echo", "a b"]) == "echo 'a b' {}"
    assert with_placeholder(["echo"], [":::", "a", "b c"]) == "echo {} ::: a 'b c'"


@pytest.mark.parametrize(
    "word",
    ['{"a":{"b":1}}', "{{.Names}}", "{{name}}", "{{ x }}", "${HOME}", "a{3}", "{1..9}", "}}"],
)
def test_other_braces_stay_as_they_are(word: str) -> None:
    assert argv("tool", word, "{}") == ["tool", word, "dir/a.tar.gz"]


def test_columns_have_parts_too_and_numbers_may_name_them() -> None:
    assert argv("tool", "{file/.}", "{file//}", file="d/a.b") == ["tool", "a", "d"]
    columns = {"1": "d/a.b", "2": "x"}
    template = Template.parse(["tool", "{2}-{1/}", "{print}"], columns)
    assert template.argv(Item("d/a.b", 1, columns)) == ["tool", "x-a.b", "{print}"]
    with pytest.raises(
        InvalidRequest, match=r"\{3\} names no column; the columns are 1, 2 \(write \{\{3\}\}"
    ):
        Template.parse(["tool", "{3}"], columns)


def test_the_slot_is_not_known_here() -> None:
    with pytest.raises(InvalidRequest, match="only known where the task runs") as refused:
        Template.parse(["tool", "{%}"])
    assert "MITOSIS_WORKER_ID" in str(refused.value.facts["hint"])
    assert argv("tool", "{{%}}") == ["tool", "{%}"]


def test_another_text_may_stand_for_the_input() -> None:
    template = Template.parse(["awk", "{print}", "{}", "%.x", "%"], placeholder="%")
    assert template.has_placeholders
    assert template.argv(Item("{}%", 1)) == ["awk", "{print}", "{}", "{}%.x", "{}%"]
    with pytest.raises(InvalidRequest, match="must not be empty"):
        Template.parse(["tool"], placeholder="")


def test_a_batch_becomes_several_words() -> None:
    item = Item("d/a", 4, batch=("d/a", "b c"))
    template = Template.parse(["tool", "{}", "x", "{/}", "{#}"])
    template.check_batches()
    assert template.argv(item) == ["tool", "d/a", "b c", "x", "a", "b c", "4"]
    shell = Template.parse(["tool {} > out"], through_shell=True)
    shell.check_batches()
    assert shell.argv(item) == ["sh", "-c", 'tool "${1}" "${2}" > out', "sh", "d/a", "b c"]
    with pytest.raises(InvalidRequest, match=r"cannot be inside .a\{\}."):
        Template.parse(["tool", "a{}"]).check_batches()


def test_no_command_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="give a command"):
        Template.parse([])
