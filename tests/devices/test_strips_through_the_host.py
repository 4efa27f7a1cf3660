"""Over gloo, which cannot send from a GPU, halos of parts on a GPU go through the host."""

import emulated
import torch
import torch.distributed as dist

from ens10.models.parallel.exchange import Messages, Traffic


class Group:
    def size(self):
        return 1


def test_gloo_gets_memory_of_the_host(monkeypatch):
    seen = []

    def all_to_all(received, sent, expected, sizes, group):
        seen.append({received.device.type, sent.device.type})
        assert (expected, sizes) == ([sum(sizes)], [sum(expected)])
        received.copy_(sent)

    monkeypatch.setattr(dist, "get_backend", lambda group: "gloo")
    monkeypatch.setattr(dist, "all_to_all_single", all_to_all)
    link = Messages(Group(), (0,), 0, Traffic())
    up, down = torch.arange(6.0).view(1, 1, 2, 3), -torch.arange(3.0).view(1, 1, 1, 3)
    with emulated.accelerator():
        before, after = link.swap(emulated.moved(up), emulated.moved(down), around=True)
        assert before.device.type == after.device.type == "meta"
        assert before.cpu().tolist() == down.tolist()
        assert after.cpu().tolist() == up.tolist()
    assert seen == [{"cpu"}]
