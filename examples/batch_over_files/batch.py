"""Run a command over every file below a folder, and collect what the commands print.

Write a list of checksums that `sha256sum --check` reads. The first files are processed while the folder is
still being walked.

    python examples/batch_over_files/batch.py FOLDER SUMS

Needs a running stack (`mitosis up`), or MITOSIS_API_URL and MITOSIS_TOKEN. The hosts must see the files
under the same names.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from mitosis import Client, TaskSubmission


def files_below(folder: Path) -> Iterator[Path]:
    """Yield every file below the folder, in the order of the file system."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def checksum_of(file: Path) -> TaskSubmission:
    """Return a task that prints one line. The name is an argument: only newlines are a problem."""
    return TaskSubmission(command=["sha256sum", "--", str(file)], timeout_seconds=600)


async def main(folder: Path, sums: TextIO) -> int:
    good = bad = 0
    async with Client.connect() as client, client.task_group(workers=4) as group:
        ids = await group.submit_tasks(map(checksum_of, files_below(folder)))
        print(f"{len(ids)} tasks in group {group.info.name}")
        async for task in group.results():
            output = task.detail or {}
            if task.state == "succeeded":
                good += 1
                sums.write(str(output.get("stdout")))
            else:
                bad += 1
                print(f"{task.spec['command']}: {output.get('stderr')}", file=sys.stderr)
    print(f"{good} checksums written, {bad} files failed")
    return 1 if bad else 0


def folder_of(text: str) -> Path:
    """Return the folder that an argument names."""
    folder = Path(text).resolve()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {folder}")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", type=folder_of)
    parser.add_argument("sums", metavar="SUMS", type=argparse.FileType("w"))
    given = parser.parse_args()
    with given.sums:
        sys.exit(asyncio.run(main(given.folder, given.sums)))
