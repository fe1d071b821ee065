"""Report how long files and functions are, and fail on long ones without a reason.

The report is a habit, not a limit: it fails only above 500 lines a file or 60 a function, and
not there either when :data:`REASONS` says why.
"""

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TREES = (
    "mitosis",
    "workflows",
    "activities",
    "manager_agent",
    "api",
    "migrations",
    "tests",
    "tools",
    "examples",
    "bench",
)
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# "path" or "path:function" -> why this one may be longer.
REASONS: dict[str, str] = {
    "mitosis/cli/simulate/command.py:simulate": "declarations of options",
    "mitosis/cli/worker/commands.py:worker": "declarations of options",
    "mitosis/settings.py": "a list of settings, which the reference is made from",
    "mitosis/store/pg/tables.py": "a list of tables, which the test compares with the migrations",
}


@dataclass(frozen=True, slots=True)
class Size:
    """One file, or one function in it, and its length in lines."""

    name: str
    lines: int
    limit: int

    @property
    def too_long(self) -> bool:
        return self.lines > self.limit and self.name not in REASONS


@dataclass(frozen=True, slots=True)
class Tree:
    """The sizes of everything below one folder."""

    name: str
    files: Sequence[Size]
    functions: Sequence[Size]


def measure(root: Path, folder: str) -> Tree:
    """Read every Python file below ``root / folder``."""
    files: list[Size] = []
    functions: list[Size] = []
    for path in sorted((root / folder).rglob("*.py")):
        text = path.read_text()
        name = str(path.relative_to(root))
        files.append(Size(name, text.count("\n"), MAX_FILE_LINES))
        functions.extend(
            Size(f"{name}:{qualified}", node_lines, MAX_FUNCTION_LINES)
            for qualified, node_lines in _functions(ast.parse(text, name))
        )
    return Tree(folder, files, functions)


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Qualified name and length of every function, a function within another counted as its own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            qualified = f"{prefix}{child.name}"
            yield qualified, (child.end_lineno or child.lineno) - child.lineno + 1
            yield from _functions(child, f"{qualified}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def spread(sizes: Sequence[Size]) -> str:
    """Median, 90th percentile and maximum of the lengths."""
    lines = sorted(size.lines for size in sizes)
    if not lines:
        return "-"
    p90 = lines[min(len(lines) - 1, len(lines) * 9 // 10)]
    return f"{statistics.median(lines):.0f} / {p90} / {lines[-1]}"


def report(trees: Sequence[Tree]) -> str:
    """One row per folder: files, lines, and the spread of file and function lengths."""
    rows = [("tree", "files", "lines", "file median/p90/max", "function median/p90/max")]
    rows += [
        (
            tree.name,
            str(len(tree.files)),
            str(sum(size.lines for size in tree.files)),
            spread(tree.files),
            spread(tree.functions),
        )
        for tree in trees
        if tree.files
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(root: Path) -> int:
    trees = [measure(root, folder) for folder in TREES]
    print(report(trees))
    sizes = [size for tree in trees for size in (*tree.files, *tree.functions)]
    known = {size.name for size in sizes if size.lines > size.limit}
    failures = [
        f"{size.name} has {size.lines} lines, more than {size.limit}: split it, "
        "or give the reason in tools/sizes.py"
        for size in sizes
        if size.too_long
    ]
    failures += [
        f"{name} is listed in tools/sizes.py but is not too long any more"
        for name in sorted(REASONS.keys() - known)
    ]
    if failures:
        print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
