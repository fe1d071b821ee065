"""`mitosis worker` with executors over the real API: one service, several kinds, killed in the middle."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.container_engine import container_engine
from tests.support.service_processes import scene, stopped
from tests.support.waiting import wait_until_async

SCRIPT = r"""
name=$1
cat > /dev/null
case "$MITOSIS_CHECKPOINT" in
null)
    said='{"fraction":0.5,"stage":"copy","message":"one of two","checkpoint":{"copied":1}}'
    echo "$said" > "$MITOSIS_PROGRESS"
    echo $$ > pid-$name
    sleep 600 ;;
*)
    printf '{"before":%s,"configuration":%s,"version":%s}' \
        "$MITOSIS_CHECKPOINT" "$MITOSIS_CONFIGURATION" "$MITOSIS_CONFIGURATION_VERSION" ;;
esac
"""
SHOP = r"""
import asyncio, json, os, subprocess, sys
from pathlib import Path
from mitosis.executors.contract import Ended

def handle(name):
    given = json.dumps({})
    done = subprocess.run(["sh", "script.sh", name], input=given, capture_output=True, text=True)
    return json.loads(done.stdout)

class Kind:
    def check(self, configuration): ...
    async def start(self, service): ...
    async def close(self): ...
    def make(self):
        return Executor()

class Executor:
    kind = "shelf"

    def estimate_seconds(self, task): ...
    def validate_resources(self, task): ...
    async def cancel(self, grace_seconds): ...

    async def execute(self, task, context):
        if context.last_checkpoint is None:
            context.progress(0.5, "copy", "one of two")
            await context.checkpoint({"copied": 1})
            Path("pid-shelf").write_text(str(os.getpid()))
            await asyncio.Event().wait()
        result = {"before": context.last_checkpoint, "configuration": dict(context.configuration),
                  "version": int(context.variables["MITOSIS_CONFIGURATION_VERSION"])}
        return Ended(result=json.dumps(result).encode())
"""
FILE = """namespace_name: images
name: {name}
version: '1'
executor: {name}
configuration: {configuration}
"""
KINDS = {
    "command": '{size: 300}\ncommand: ["sh", "script.sh", "command"]',
    "handler": "{size: 300}\nhandler: shop:handle",
    "container": '{size: 300, image: "shop:1", command: ["sh", "script.sh", "container"]}',
    "shelf": "{size: 300}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with an executor, the script of the others, and a file for each kind."""
    (tmp_path / "script.sh").write_text(SCRIPT)
    (tmp_path / "shop.py").write_text(SHOP)
    package = tmp_path / "shelf-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[mitosis.executors]\nshelf = shop:Kind\n")
    (tmp_path / "config").mkdir()
    for name, configuration in KINDS.items():
        file = tmp_path / "config" / f"{name}.yaml"
        file.write_text(FILE.format(name=name, configuration=configuration))
    return tmp_path


def is_gone(folder: Path, name: str) -> bool:
    try:
        os.kill(int((folder / f"pid-{name}").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.spec("S003-24", "S003-27", "S003-59")
async def test_each_kind_has_one_result_after_a_kill_and_goes_on_from_its_checkpoint(
    database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def all_wait() -> bool:
        shown = [one.progress for one in await it.tasks()]
        begun = all((folder / f"pid-{name}").exists() for name in KINDS)
        return begun and all(one is not None and one.checkpoint for one in shown)

    words = ("--config", str(folder / "config"), "--slots", "4")
    with container_engine(folder):
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        async with scene(database, folder) as it:
            for name in KINDS:
                await it.submit_named(f"images/{name}@1", name=name)
            first = await it.start_ours(None, "w-1", *words)
            try:
                await wait_until_async(all_wait, interval=0.1, on_timeout=it.log)
                shown: list[Any] = [one.progress for one in await it.tasks()]
                said = {(one.fraction, one.stage, one.message) for one in shown if one.fraction}
                assert said <= {(0.5, "copy", "one of two")}
            finally:
                first.kill()
            assert await first.wait() != 0
            second = await it.start_ours(None, "w-1", *words)
            try:
                await wait_until_async(it.ended, interval=0.1, on_timeout=it.log)
                results = [
                    (one.state, one.attempt, (one.detail or {})["result"])
                    for one in await it.tasks()
                ]
                for name in KINDS:
                    assert is_gone(folder, name), name
            finally:
                await stopped(second)
    result: Any
    for state, attempt, result in results:
        assert (state, attempt) == ("succeeded", 2)
        assert result["before"] == {"copied": 1}
        assert result["configuration"]["size"] == 300
        assert result["version"] == 1
