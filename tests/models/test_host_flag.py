"""Flags that the host reads once after each change."""

import copy

import torch
from torch import nn

from ens10.models.host_flag import HostFlag
from ens10.models.statistical import EMOS


class Counted(torch.Tensor):
    """A tensor that counts how often its truth is asked for."""

    reads = 0

    def __bool__(self):
        Counted.reads += 1
        return bool(self.as_subclass(torch.Tensor))


def test_it_is_read_once_after_each_change():
    flag, buffer = HostFlag(), torch.zeros((), dtype=torch.bool).as_subclass(Counted)
    Counted.reads = 0
    assert [flag.of(buffer) for _ in range(3)] == [False] * 3
    assert Counted.reads == 1
    buffer.fill_(True)
    assert [flag.of(buffer) for _ in range(3)] == [True] * 3
    assert Counted.reads == 2


def test_a_loaded_and_a_copied_method_know_their_state():
    method, solved = EMOS(), EMOS()
    solved.solved.fill_(True)
    assert not method.is_solved
    assert solved.is_solved
    assert copy.deepcopy(solved).is_solved
    method.load_state_dict(solved.state_dict(), strict=False)
    assert method.is_solved
    assert nn.Sequential(method).double()[0].is_solved


def test_tensors_of_the_inference_mode_are_read_each_time():
    with torch.inference_mode():
        flag, buffer = HostFlag(), torch.zeros((), dtype=torch.bool)
        assert not flag.of(buffer)
        buffer.fill_(True)
        assert flag.of(buffer)
