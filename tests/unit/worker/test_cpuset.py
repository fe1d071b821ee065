"""Where a cpuset cgroup can be made, from the memberships of both versions of cgroups."""

from pathlib import Path

import pytest

from mitosis.worker.cpuset import CpusetError, parent_cgroup

V1 = "9:name=systemd:/\n4:memory:/box/1\n3:cpuset,cpu:/box\n0::/\n"
V2 = "0::/user.slice/agent\n"


def cgroup(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").touch()
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def test_version_1_has_a_hierarchy_of_its_own(tmp_path: Path) -> None:
    top = cgroup(tmp_path / "cpuset")
    assert parent_cgroup(V1, tmp_path) == top  # a container sees its own cgroup as the root
    inner = cgroup(tmp_path / "cpuset" / "box")
    assert parent_cgroup(V1, tmp_path) == inner


def test_version_2_needs_the_controller_for_children(tmp_path: Path) -> None:
    own = cgroup(tmp_path / "user.slice/agent")
    with pytest.raises(CpusetError, match="not delegated"):
        parent_cgroup(V2, tmp_path)
    (own / "cgroup.subtree_control").write_text("cpuset memory\n")
    assert parent_cgroup(V2, tmp_path) == own


@pytest.mark.parametrize(
    ("membership", "why"), [(V1, "is not mounted"), ("4:memory:/\n", "no cpuset controller")]
)
def test_a_host_without_one_says_why(tmp_path: Path, membership: str, why: str) -> None:
    with pytest.raises(CpusetError, match=why):
        parent_cgroup(membership, tmp_path)
