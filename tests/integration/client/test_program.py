"""How workers import what a script defines: real scripts, started in every way, and what they are told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mitosis.client.program import search_path

DEFINE = """
import json
from mitosis.client.functions import remote_function
from mitosis.client.program import search_path
from mitosis import handler

@handler
def work(x: int) -> int:
    return x

def submit():
    found = remote_function(work, search_path(), {})
    print(json.dumps([found.name, found.folder, search_path()]))
"""
GUARDED = DEFINE + "\nif __name__ == '__main__':\n    submit()\n"


def start(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def script(folder: Path, text: str, name: str = "sweep.py") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_script_is_imported_by_its_name_from_its_folder(tmp_path: Path) -> None:
    file = script(tmp_path / "deep", GUARDED)
    done = start(tmp_path, str(file))
    assert done.returncode == 0, done.stderr
    name, folder, path = json.loads(done.stdout)
    assert (name, folder) == ("sweep:work", str(tmp_path / "deep"))
    assert path[0] == folder
    importing = start(tmp_path / "deep", "-c", "import sweep; print(sweep.work(3))")
    assert importing.stdout == "3\n"  # and nothing is submitted again


def test_a_script_inside_an_event_loop_too(tmp_path: Path) -> None:
    text = DEFINE + (
        "\nimport asyncio\nasync def main():\n    await asyncio.sleep(0)\n    submit()\n"
        "if __name__ == '__main__':\n    asyncio.run(main())\n"
    )
    done = start(tmp_path, str(script(tmp_path, text)))
    assert json.loads(done.stdout)[0] == "sweep:work", done.stderr


def test_a_module_is_imported_by_its_full_name(tmp_path: Path) -> None:
    script(tmp_path / "package", GUARDED, "__init__.py").write_text("")
    script(tmp_path / "package", GUARDED, "job.py")
    done = start(tmp_path, "-m", "package.job")
    assert done.returncode == 0, done.stderr
    name, folder, path = json.loads(done.stdout)
    assert (name, folder) == ("package.job:work", None)
    assert str(tmp_path) in path


@pytest.mark.parametrize(
    "text",
    [
        DEFINE + "\nsubmit()\n",
        DEFINE + "\nif __name__ == '__main__':\n    pass\nsubmit()\n",
        DEFINE + "\nif __name__ != 'other':\n    submit()\n",
    ],
)
def test_a_script_that_workers_would_run_again_is_refused(tmp_path: Path, text: str) -> None:
    done = start(tmp_path, str(script(tmp_path, text)))
    assert done.returncode == 1
    assert "workers import sweep.py to find work, and would run all of it again" in done.stderr
    assert 'put what the script does under: if __name__ == "__main__":' in done.stderr


def test_a_script_that_cannot_be_a_module_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path, str(script(tmp_path, GUARDED, "my-sweep.py")))
    assert "give the file a name as in my_sweep.py" in done.stderr


def test_a_prompt_or_notebook_is_told_to_write_a_file(tmp_path: Path) -> None:
    done = start(tmp_path, "-c", DEFINE + "\nsubmit()")
    assert "write it into a file beside it, such as work.py (%%writefile work.py)" in done.stderr


def test_workers_that_do_not_look_there_are_named_the_folder(tmp_path: Path) -> None:
    text = GUARDED.replace("search_path(), {}", "('/elsewhere',), {}")
    done = start(tmp_path, str(script(tmp_path, text)))
    assert f"create the group with python_path={[str(tmp_path)]!r}" in done.stderr


def test_the_search_path_has_our_folders_and_none_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site_packages = str(Path(pytest.__file__).parent.parent)
    standard_library = str(Path(os.__file__).parent)
    wanted = ["", str(tmp_path / "gone"), site_packages, standard_library, "/", "/", "x.zip"]
    monkeypatch.setattr(sys, "path", wanted)
    assert search_path() == (str(tmp_path), "/")
