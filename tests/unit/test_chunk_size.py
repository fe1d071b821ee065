"""How many rows a chunk has: as many as take about 50 ms."""

from mitosis.chunk_size import SECONDS, ChunkSize


def after(*seconds_for_each_row: float, chunks: int = 30) -> list[int]:
    size = ChunkSize()
    rows = []
    for cost in seconds_for_each_row:
        for _ in range(chunks):
            size.took(cost * size.rows)
        rows.append(size.rows)
    return rows


def test_it_finds_the_number_of_rows_whatever_a_row_costs() -> None:
    for cost in (1e-3, 1e-4, 1e-5):
        (rows,) = after(cost)
        assert SECONDS / 4 < rows * cost <= SECONDS


def test_it_follows_a_change_of_the_cost_and_has_bounds() -> None:
    cheap, dear, cheap_again = after(1e-7, 1.0, 1e-7)
    assert (cheap, dear, cheap_again) == (10_000, 1, 10_000)


def test_a_chunk_that_did_not_end_is_repeated_with_a_tenth() -> None:
    size = ChunkSize(first=500)
    sizes = []
    for _ in range(4):
        size.failed()
        sizes.append(size.rows)
    assert sizes == [50, 5, 1, 1]
