"""The reader of documents sees what a person sees."""

from tests.support.pages import File, Program, Typed, fits, steps

PAGE = """
```console
$ echo a \\
    b
a b
$ sh -c 'echo "
x"'
$ true    # a comment
```
```python
# tasks.py
print()
```
```python
print(1)
```
```text
nothing to do
```
"""


def test_lines_answers_files_and_programs_are_found() -> None:
    assert steps(PAGE) == [
        Typed("echo a \\\n    b", ("a b",)),
        Typed("sh -c 'echo \"\nx\"'"),
        Typed("true    # a comment"),
        File("tasks.py", "# tasks.py\nprint()\n"),
        Program("print(1)\n"),
    ]


def test_what_is_shown_must_be_what_is_printed() -> None:
    assert fits(("a   b", "…", "took … s"), "a b\nx\ny\ntook 1.5 s\n")
    assert fits(("a", "…", "b"), "a\nb\n")
    assert not fits(("a b",), "a b\nc\n")
    assert not fits(("a …",), "b c\n")
    assert not fits(("a", "b"), "b\na\n")
