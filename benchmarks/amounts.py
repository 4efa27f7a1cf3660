"""Claim: CRPS of distributions for precipitation, beside scoringrules, and with gradients.

    python benchmarks/amounts.py [--rounds N] [--check] [--out FILE]

100,000 points of amounts, 40 % of them without precipitation, float64, one thread, processor time.
First the scores are compared with those of scoringrules; then both are timed in turns. Ours have
forms that keep their digits at any parameters, which cost more than the shortest closed form.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scoringrules
import torch
from common import Line, interleave, run

from ens10.metrics import crps_csgd, crps_gev

CODE = ("metrics/distributions",)

POINTS = 100_000


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]]:
    """Return our score, its arguments, and the same score by scoringrules, by family."""
    rng = np.random.default_rng(0)
    shape, scale = np.exp(rng.normal(0.3, 0.7, POINTS)), np.exp(rng.normal(0, 0.8, POINTS))
    shift = np.exp(rng.normal(-1, 0.8, POINTS))
    y = np.where(rng.random(POINTS) < 0.4, 0.0, rng.gamma(0.7, 3, POINTS))
    mu, heaviness = rng.normal(0, 1, POINTS), rng.normal(0.1, 0.15, POINTS).clip(-0.3, 0.45)
    return {
        "censored, shifted gamma": (
            crps_csgd,
            (shape, scale, shift, y),
            lambda: scoringrules.crps_csg0(y, shape, scale=scale, shift=shift),
        ),
        "GEV": (
            crps_gev,
            (mu, scale, heaviness, y),
            lambda: scoringrules.crps_gev(y, heaviness, mu, scale),
        ),
    }


def gradient(score: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], Any]:
    """Return the score and its gradients of tensors."""
    *parameters, y = (torch.from_numpy(a) for a in arguments)

    def both() -> Any:
        leaves = [p.detach().clone().requires_grad_() for p in parameters]
        return torch.autograd.grad(score(*leaves, y).sum(), leaves)

    return both


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Compare and time both."""
    torch.set_num_threads(1)
    lines, largest = [], {}
    for name, (score, arguments, other) in cases().items():
        ours, theirs = score(*arguments), np.asarray(other())
        difference = np.abs(ours - theirs)
        largest[name] = float(difference.max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
        subjects = {
            "ours": lambda score=score, given=arguments: score(*given),
            "theirs": other,
            "gradient": gradient(score, arguments),
        }
        found = interleave(subjects, options.rounds, time.process_time)
        text = f"{name}: scoringrules over ours, processor time"
        lines.append(Line(text, found["theirs"] / found["ours"], 1.0))
        text = f"{name}: our score with gradients over our score"
        lines.append(Line(text, found["gradient"] / found["ours"], 5.0, at_least=False))
    return lines, {"largest_difference": largest, "scoringrules": scoringrules.__version__}


if __name__ == "__main__":
    claim = "CRPS of distributions for precipitation, beside scoringrules, and with gradients"
    sys.exit(run(claim, measure, code=CODE, rounds=9))
