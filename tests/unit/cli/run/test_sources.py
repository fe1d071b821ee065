"""Inputs of a run: every source, read as it arrives, with any byte."""

import io
import os
import threading

import pytest

from mitosis.cli.run.sources import (
    Source,
    from_csv,
    from_json,
    from_lines,
    from_lists,
    from_range,
    from_values,
    in_batches,
    split_columns,
)
from mitosis.contracts.errors import InvalidRequest


def values(source: Source) -> list[str]:
    items = list(source.items)
    assert [item.number for item in items] == list(range(1, len(items) + 1))
    return [item.value for item in items]


def test_values_and_ranges_know_their_number() -> None:
    assert from_values(["a", "b"]).count == 2
    assert values(from_values(["a", "", "a"])) == ["a", "", "a"]
    assert values(from_range("1-5:2")) == ["1", "3", "5"]
    assert values(from_range("-2-0")) == ["-2", "-1", "0"]
    assert values(from_range("008-10")) == ["008", "009", "010"]
    assert values(from_range("-01-1")) == ["-01", "000", "001"]
    assert values(from_range("0-1")) == ["0", "1"]
    assert from_range("1-100000000").count == 100_000_000


@pytest.mark.parametrize("text", ["", "1", "1..5", "a-b", "5-1", "1-5:0"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="range") as refused:
        from_range(text)
    assert refused.value.facts["option"] == "--range"


def test_lines_keep_every_byte() -> None:
    data = b'a b\n\n  c\t\nit\'s "x"\n\xff\xfe\nlast'
    got = values(from_lines(io.BytesIO(data)))
    assert got == ["a b", "  c\t", 'it\'s "x"', os.fsdecode(b"\xff\xfe"), "last"]
    assert values(from_lines(io.BytesIO(b"a\nb\0\0c\0"), nul=True)) == ["a\nb", "", "c"]


def finish(writer: int) -> None:
    os.write(writer, b"ee\n")
    os.close(writer)


def test_an_open_pipe_gives_what_it_has() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream:
        items = iter(from_lines(stream).items)
        os.write(writer, b"one\ntwo\nthr")
        assert [next(items).value, next(items).value] == ["one", "two"]  # while it stays open
        threading.Thread(target=finish, args=[writer]).start()
        assert [item.value for item in items] == ["three"]


def test_csv_rows_have_columns() -> None:
    source = from_csv(io.BytesIO('\ufeffhost,n\n"a,b",1\n\n"line\nbreak",2\n'.encode()))
    assert source.columns == {"host", "n"}
    assert [(item.value, dict(item.columns)) for item in source.items] == [
        ("a,b", {"host": "a,b", "n": "1"}),
        ("line\nbreak", {"host": "line\nbreak", "n": "2"}),
    ]


def test_csv_mistakes_are_named() -> None:
    with pytest.raises(InvalidRequest, match="name the columns"):
        from_csv(io.BytesIO(b"a,a\n1,2\n"))
    with pytest.raises(InvalidRequest, match="row 2 of the file has 1 fields, the header has 2"):
        list(from_csv(io.BytesIO(b"a,b\n1,2\n3\n")).items)


def test_json_lists_lines_and_objects() -> None:
    assert values(from_json(io.BytesIO(b'["a", 1, null, {"x": [2]}]'))) == [
        "a",
        "1",
        "null",
        '{"x": [2]}',
    ]
    assert values(from_json(io.BytesIO(b'"a"\n\n"b"\n'))) == ["a", "b"]
    source = from_json(io.BytesIO(b'{"a": 1, "b": "x y"}\n{"a": [1], "b": "\xc3\xa9"}\n'))
    assert source.columns == {"a", "b"}
    assert [dict(item.columns) for item in source.items] == [
        {"a": "1", "b": "x y"},
        {"a": "[1]", "b": "é"},
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{]", "line 1 of the file is not JSON"),
        (b"[1, NaN]", "entry 2 of the file has a number"),
        (b'{"a": 1}\n{"a": [1e400]}', "entry 2 of the file has a number"),
        (b'[{"a": 1}, 2]', "entry 2 of the file is not an object"),
        (b'[{"a": 1}, {"b": 1}]', "entry 2 of the file has other keys"),
    ],
)
def test_json_mistakes_are_named(data: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        from_json(io.BytesIO(data))


def rows(source: Source) -> list[str]:
    return [" ".join(item.columns.values()) for item in source.items]


def test_several_lists_are_combined_or_go_along() -> None:
    crossed = from_lists([(":::", ["a", "b"]), (":::", ["1", "2"])])
    assert (crossed.count, crossed.columns) == (4, frozenset({"1", "2"}))
    assert rows(crossed) == ["a 1", "a 2", "b 1", "b 2"]
    linked = from_lists([(":::", ["a", "b"]), (":::+", ["1", "2"]), (":::", ["x"])])
    assert rows(linked) == ["a 1 x", "b 2 x"]
    with pytest.raises(InvalidRequest, match=r"1 values after :::\+, but 2 before"):
        from_lists([(":::", ["a", "b"]), (":::+", ["1"])])


def test_lines_are_split_into_columns() -> None:
    source = split_columns(from_lines(io.BytesIO(b"a b\t1\nc\t2\nd\n")), "\\t")
    assert source.columns == {"1", "2"}
    with pytest.raises(InvalidRequest, match="line 3 has 1 columns, the first line 2"):
        rows(source)
    assert list(split_columns(from_lines(io.BytesIO(b"")), ",").items) == []


def test_batches_take_so_many_and_the_last_one_the_rest() -> None:
    source = in_batches(from_values(["a", "b", "c"]), 2)
    assert source.count == 2
    assert [(item.number, item.values) for item in source.items] == [(1, ("a", "b")), (2, ("c",))]
    with pytest.raises(InvalidRequest, match="must be 1 or more"):
        in_batches(from_values([]), 0)
    with pytest.raises(InvalidRequest, match="cannot be combined"):
        in_batches(from_lists([(":::", ["a"]), (":::", ["b"])]), 2)


class NamedFile(io.BytesIO):
    name = "hosts.csv"


def test_an_empty_table_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"hosts\.csv is empty: its first line must name"):
        from_csv(NamedFile(b""))
    with pytest.raises(InvalidRequest, match=r"hosts\.csv is not CSV"):
        list(from_csv(NamedFile(b'a,b\n"x"y,1\n')).items)
