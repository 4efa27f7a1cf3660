"""Lion with votes: one process's steps are Lion's, and several follow the majority."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from ens10.experiments.studies.voting_lion import VotingLion, majority

RATE, DECAY, NOW, LATER = 0.01, 0.3, 0.9, 0.99


def reference(weights, gradients):
    """Weights after Lion's steps, one number at a time."""
    found = []
    for start, column in zip(weights, zip(*gradients, strict=True), strict=True):
        weight, momentum = start, 0.0
        for gradient in column:
            direction = NOW * momentum + (1 - NOW) * gradient
            weight -= RATE * ((1 if direction >= 0 else -1) + DECAY * weight)
            momentum = LATER * momentum + (1 - LATER) * gradient
        found.append(weight)
    return found


@pytest.mark.parametrize("votes", [True, False])
def test_one_process_takes_the_steps_of_lion(votes):
    random = torch.Generator().manual_seed(0)
    start = torch.randn(13, generator=random, dtype=torch.float64)
    gradients = torch.randn(20, 13, generator=random, dtype=torch.float64)
    weight = nn.Parameter(start.clone())
    optimizer = VotingLion([weight], lr=RATE, weight_decay=DECAY, votes=votes)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    wanted = reference(start.tolist(), gradients.tolist())
    assert weight.tolist() == pytest.approx(wanted, abs=1e-14)


VALUES = [[1.0, -2, 3, -4, 5, 6, -7, 8, 0], [1, -1, -1, 1, 1, -1, -1, 1, -1], [-1.0] * 9]


def vote(rank, processes, path):
    dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=processes)
    torch.save(majority(torch.tensor(VALUES[rank])), f"{path}-{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_follow_the_majority(tmp_path, processes):
    path = tmp_path / "group"
    torch.multiprocessing.spawn(vote, (processes, str(path)), processes)
    votes = [torch.load(f"{path}-{rank}").tolist() for rank in range(processes)]
    signs = [[1 if value >= 0 else -1 for value in row] for row in VALUES[:processes]]
    sums = [sum(column) for column in zip(*signs, strict=True)]
    wanted = [(total > 0) - (total < 0) for total in sums]
    assert votes == [wanted] * processes
