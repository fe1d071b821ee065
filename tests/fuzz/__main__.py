"""Random calls of every route, until so many were made: ``make fuzz``.

Goes on where it stopped: each chunk of calls is a line of ``.fuzz/SEED.jsonl``. ``--chunk N`` makes one chunk
again. Ends with status 1 if an answer was a server error or not as documented, or if an operation never
succeeded.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.campaign import Report, run_chunk
from tests.fuzz.servers import servers

CALLS = 100_000
EACH = 16
"""Calls of each operation in a chunk."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--each", type=int, default=EACH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chunk", type=int, help="make only this chunk, and keep nothing")
    given = parser.parse_args()
    total = Report()
    if given.chunk is not None:
        with servers() as running:
            _add(total, run_chunk(running, given.chunk, given.each))
        return _end(total)
    kept = Path(f".fuzz/{given.seed}.jsonl")
    kept.parent.mkdir(exist_ok=True)
    done = _read(kept, total)
    number = given.seed * 1_000_000
    with servers() as running:
        while total.calls < given.calls:
            if number not in done:
                began = time.monotonic()
                report = run_chunk(running, number, given.each)
                with kept.open("a") as lines:
                    lines.write(json.dumps({"chunk": number, **report.__dict__}) + "\n")
                _add(total, report)
                taken = time.monotonic() - began
                print(f"chunk {number}: {report.calls} calls in {taken:.0f} s,", end=" ")
                print(f"{total.calls} in all, {len(total.wrong)} kinds of faults", flush=True)
            number += 1
    return _end(total)


def _read(kept: Path, total: Report) -> set[int]:
    """Add what earlier runs have found; return their chunks."""
    done = set()
    for line in kept.read_text().splitlines() if kept.exists() else ():
        fields = json.loads(line)
        done.add(fields.pop("chunk"))
        fields["statuses"] = Counter(fields["statuses"])
        _add(total, Report(**fields))
    return done


def _add(total: Report, report: Report) -> None:
    total.calls += report.calls
    total.unsendable += report.unsendable
    total.statuses += report.statuses
    for key, found in report.wrong.items():
        kept = total.wrong.setdefault(key, {**found, "times": 0})
        kept["times"] += found["times"]


def never_succeeded(statuses: "Counter[str]") -> list[str]:
    """The operations that no call has succeeded with."""
    labels = {key.rpartition(" ")[0] for key in statuses}
    good = {key.rpartition(" ")[0] for key in statuses if key.rpartition(" ")[2].startswith("2")}
    return sorted(labels - good)


def _end(total: Report) -> int:
    for key, found in sorted(total.wrong.items()):
        print(f"\n{key}: {found['times']} times")
        print(
            "\n".join(
                f"  {name}: {found[name]}"
                for name in ("caller", "what", "curl", "log")
                if found.get(name)
            )
        )
    codes: Counter[str] = Counter()
    for key, count in total.statuses.items():
        codes[key.rpartition(" ")[2]] += count
    never = never_succeeded(total.statuses)
    sent = f"{total.calls} calls ({total.unsendable} cases could not be sent)"
    print(f"\n{sent}, by status: {dict(sorted(codes.items()))}")
    print(f"{len(total.wrong)} kinds of faults; operations that never succeeded: {never or 'none'}")
    return 1 if total.wrong or never else 0


if __name__ == "__main__":
    sys.exit(main())
