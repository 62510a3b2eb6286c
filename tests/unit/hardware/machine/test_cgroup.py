import pytest

from trainwright.hardware.machine import cgroup

GIB = 1 << 30


@pytest.fixture
def root(tmp_path):
    def write(path, text):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")

    return tmp_path, write


def test_version_2_takes_the_tightest_limit_of_the_group_and_its_ancestors(root):
    path, write = root
    write("proc/self/cgroup", "0::/pod/box")
    write("sys/fs/cgroup/pod/memory.max", str(8 * GIB))
    write("sys/fs/cgroup/pod/memory.current", str(3 * GIB))
    write("sys/fs/cgroup/pod/memory.stat", f"anon 5\ninactive_file {GIB}")
    write("sys/fs/cgroup/pod/box/memory.max", "max")
    write("sys/fs/cgroup/pod/box/cpu.max", "150000 100000")
    assert cgroup.memory_limit_bytes(path) == 8 * GIB
    assert cgroup.memory_used_bytes(path) == 2 * GIB
    assert cgroup.cpu_limit(path) == 1.5


def test_version_1_reads_each_controller_in_its_own_tree(root):
    path, write = root
    write("proc/self/cgroup", "4:memory:/job\n1:cpu:/job")
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(4 * GIB))
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", str(GIB))
    write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1")
    write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
    assert cgroup.memory_limit_bytes(path) == 4 * GIB
    assert cgroup.memory_used_bytes(path) == GIB
    assert cgroup.cpu_limit(path) is None


def test_no_groups_no_limits(tmp_path):
    assert cgroup.memory_limit_bytes(tmp_path) is None
    assert cgroup.memory_used_bytes(tmp_path) is None
    assert cgroup.cpu_limit(tmp_path) is None
