"""Where the checkout is that is tested."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of pyproject.toml."""
