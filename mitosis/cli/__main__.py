"""``python -P -m mitosis.cli``: the ``mitosis`` command where its script is not on PATH."""

from mitosis.cli import main

main()
