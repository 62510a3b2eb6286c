"""What one rank wishes all do, one step later."""

from __future__ import annotations

import torch.distributed as dist

from trainwright.stages.train.ranks.agreement import Agreement


def test_wishes_are_heard_one_step_later(tmp_path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        agreement = Agreement()
        assert agreement.agreed(1.5, None, saved=False) == (0.0, None)
        assert agreement.agreed(2.5, "SIGTERM", saved=False) == (1.5, None)
        assert agreement.agreed(0.5, None, saved=True) == (0.0, "SIGTERM")
        assert agreement.agreed(1.5, None, saved=False) == (0.5, None)
        agreement.close()
    finally:
        dist.destroy_process_group()
