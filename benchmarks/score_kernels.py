"""Claim: scores at the speed of memory, and faster than the libraries that have them.

    python benchmarks/score_kernels.py [--device cuda] [--rounds N] [--check] [--out FILE]

4 x 10 x 361 x 720 float32, one thread. All figures are CPU time as ratios to a memcpy of the same
bytes between kept buffers: of the members for the ensemble CRPS, of mu, sigma and y (each of that
shape) for the normal one. Gradients are those of a sum. Every subject is first compared with
properscoring in double precision. Subjects beside ours that are not installed are left out; slow
ones are timed in fewer rounds. With `--device cuda` only the torch lines run, by the clock and
with synchronisation, and the bound is a copy on the device.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
import xarray as xr
from common import Line, run

from ens10.metrics import crps_ensemble, crps_normal
from ens10.metrics._kernels_torch import EagerEnsemble
from ens10.metrics.distributions import Normal
from ens10.metrics.distributions._torch import evaluate

CODE = (
    "metrics/crps", "metrics/_kernels_torch", "metrics/_kernels_numpy",
    "metrics/_ensemble_loops", "metrics/_few_member_loops", "metrics/_sorting_networks",
    "metrics/distributions",
)  # fmt: skip

SHAPE = (4, 10, 361, 720)
SLOW = 5  # a subject that takes this much longer than the others, in fewer rounds
Subjects = dict[str, Callable[[], Any]]


def timed(subjects: Mapping[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each subject, in turns; those over a second in few rounds."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    clock = time.process_time if device == "cpu" else time.perf_counter
    for n in range(rounds + 1):
        for name, subject in subjects.items():
            if len(times[name]) > 2 and n % SLOW and min(times[name]) > 1:
                continue
            start = clock()
            subject()
            if device != "cpu":
                torch.cuda.synchronize()
            if n:
                times[name].append(clock() - start)
    return {name: median(values) for name, values in times.items()}


def gradient(score: Callable[..., Any], *tensors: torch.Tensor) -> Callable[[], Any]:
    """Forward and backward through autograd."""

    def both() -> Any:
        for tensor in tensors:
            tensor.grad = None
        score(*tensors).sum().backward()

    return both


def copies(*tensors: torch.Tensor) -> Callable[[], Any]:
    """The bound: the same bytes from buffer to buffer."""
    kept = [torch.zeros_like(t) for t in tensors]
    if tensors[0].device.type == "cpu":
        pairs = [(k.numpy(), t.detach().numpy()) for k, t in zip(kept, tensors, strict=True)]
        return lambda: [np.copyto(k, t) for k, t in pairs]
    return lambda: [k.copy_(t.detach()) for k, t in zip(kept, tensors, strict=True)]


def compare(got: Any, wanted: Any, name: str) -> None:
    """Subjects must agree before their time counts."""
    values = got.detach().cpu().numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
    error = np.abs(values.astype(np.float64) - wanted).mean() / wanted.mean()
    if not error < 1e-5:
        sys.exit(f"{name} is {error:.2g} of the mean score off")


def optional(subjects: Subjects, name: str, make: Callable[[], Callable[[], Any]]) -> None:
    """A subject of another library, if it is installed."""
    try:
        subjects[name] = make()
    except ImportError as error:
        print(f"{name} left out: {error}", file=sys.stderr)


def ensembles(device: str, rng: np.random.Generator) -> Subjects:
    """Subjects for the plain ensemble CRPS."""
    import properscoring

    x, y = rng.normal(size=SHAPE).astype("f4"), rng.normal(size=(4, 361, 720)).astype("f4")
    members, observed = (torch.from_numpy(a).to(device) for a in (x, y))
    leaf = members.clone().requires_grad_()
    options = {"estimator": "plain", "member_dim": 1}

    def eager(a: torch.Tensor) -> Any:
        return EagerEnsemble.apply(a.movedim(1, 0), observed, 1.0)

    def ours(a: torch.Tensor) -> Any:
        return crps_ensemble(a, observed, **options)

    subjects: Subjects = {
        "memcpy of the members": copies(members),
        "ensemble, torch eager, forward": lambda: eager(members),
        "ensemble, torch eager, forward and backward": gradient(eager, leaf),
    }
    if device == "cpu":
        subjects["ensemble, numpy"] = lambda: crps_ensemble(x, y, **options)
        subjects["ensemble, torch, forward"] = lambda: ours(members)
        subjects["ensemble, torch, forward and backward"] = gradient(ours, leaf)
    wanted = properscoring.crps_ensemble(y.astype("f8"), x.astype("f8"), axis=1)
    for name in [n for n in subjects if "backward" not in n and "memcpy" not in n]:
        compare(subjects[name](), wanted, name)
    if device == "cpu":
        for name, make in others(x, y).items():
            optional(subjects, name, make)
            if name in subjects and "mean" not in name:
                compare(subjects[name](), wanted, name)
    return subjects


def others(x: Any, y: Any) -> dict[str, Callable[[], Callable[[], Any]]]:
    """The same score by other libraries, in the layout that each likes best."""
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))

    def by_properscoring() -> Callable[[], Any]:
        import properscoring

        return lambda: properscoring.crps_ensemble(y, last)

    def by_scoringrules() -> Callable[[], Any]:
        import scoringrules

        return lambda: scoringrules.crps_ensemble(y, last, estimator="nrg", backend="numba")

    def by_scores() -> Callable[[], Any]:
        from scores.probability import crps_for_ensemble

        dims = ("time", "number", "latitude", "longitude")
        members = xr.DataArray(x, dims=dims)
        observed = xr.DataArray(y, dims=(dims[0], *dims[2:]))
        return lambda: crps_for_ensemble(members, observed, "number", preserve_dims="all")

    def by_torchmetrics() -> Callable[[], Any]:
        from torchmetrics.functional.regression import continuous_ranked_probability_score

        flat = torch.from_numpy(last.reshape(-1, SHAPE[1])), torch.from_numpy(y.reshape(-1))
        return lambda: continuous_ranked_probability_score(*flat)

    return {
        "ensemble, properscoring": by_properscoring,
        "ensemble, scoringrules (numba)": by_scoringrules,
        "ensemble, scores": by_scores,
        "ensemble, torchmetrics (mean)": by_torchmetrics,
    }


def normals(device: str, rng: np.random.Generator) -> Subjects:
    """Subjects for the normal CRPS."""
    import properscoring

    mu, z, y = (rng.normal(size=SHAPE).astype("f4") for _ in range(3))
    sigma = np.abs(z) + np.float32(0.1)
    given = [torch.from_numpy(a).to(device) for a in (mu, sigma, y)]
    leaves = [t.clone().requires_grad_() for t in given[:2]]

    def ours(a: torch.Tensor, b: torch.Tensor) -> Any:
        return crps_normal(a, b, given[2], check=False)

    without_loop = replace(Normal.kernels["crps"], loop="")

    def eager(a: torch.Tensor, b: torch.Tensor) -> Any:
        return evaluate(without_loop, a, b, given[2])

    subjects: Subjects = {
        "memcpy of mu, sigma, y": copies(*given),
        "normal, torch eager, forward": lambda: eager(*given[:2]),
        "normal, torch eager, forward and backward": gradient(eager, *leaves),
    }
    if device == "cpu":
        subjects["normal, numpy"] = lambda: crps_normal(mu, sigma, y)
        subjects["normal, torch, forward"] = lambda: ours(*given[:2])
        subjects["normal, torch, forward and backward"] = gradient(ours, *leaves)
        subjects["normal, properscoring"] = lambda: properscoring.crps_gaussian(y, mu, sigma)
    wanted = properscoring.crps_gaussian(*(a.astype("f8") for a in (y, mu, sigma)))
    for name in [n for n in subjects if "backward" not in n and "memcpy" not in n]:
        compare(subjects[name](), wanted, name)
    return subjects


def indices(rng: np.random.Generator) -> Subjects:
    """The extreme forecast index of one field from 101 quantiles, ours and ECMWF's package."""
    from ens10.metrics.extremes import efi

    members = rng.normal(size=(10, 361 * 720)).astype("f4")
    spread = 1 + rng.random(361 * 720)
    climate = np.sort(spread * rng.normal(size=(101, 361 * 720)), axis=0).astype("f4")
    levels = np.linspace(0, 1, 101)
    options = {"method": "ecmwf", "member_dim": 0, "quantile_dim": 0, "levels": levels}
    subjects: Subjects = {"EFI, ours": lambda: efi(members, climate, **options)}

    def by_earthkit() -> Callable[[], Any]:
        from earthkit.meteo.extreme import array

        return lambda: array.efi(climate, members)

    optional(subjects, "EFI, earthkit-meteo", by_earthkit)
    if "EFI, earthkit-meteo" in subjects:
        got, wanted = (subject() for subject in subjects.values())
        if np.abs(got - wanted).max() > 1e-5:
            sys.exit(f"EFI is {np.abs(got - wanted).max():.2g} off")
    return subjects


TARGETS = {
    "ensemble, numpy": 2.0,
    "ensemble, torch eager, forward": 25.0,
    "ensemble, torch eager, forward and backward": 100.0,
    "ensemble, torch, forward and backward": 30.0,
    "normal, torch eager, forward": 8.0,
    "normal, torch eager, forward and backward": 22.0,
    "normal, torch, forward": 4.0,
    "normal, torch, forward and backward": 8.0,
}


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios to memcpy."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    lines, seconds = [], {}
    for subjects in (ensembles(options.device, rng), normals(options.device, rng)):
        found = timed(subjects, options.rounds, options.device)
        bound = next(iter(found.values()))
        seconds |= found
        lines += [
            Line(f"{name}, x memcpy", found[name] / bound, target, at_least=False)
            for name, target in TARGETS.items()
            if name in found
        ]
    if options.device == "cpu":
        ours = seconds["ensemble, numpy"]
        share = seconds["ensemble, properscoring"] / ours
        lines.append(Line("ensemble, properscoring's time to ours", share, 20.0))
        seconds |= timed(indices(rng), options.rounds, "cpu")
        if "EFI, earthkit-meteo" in seconds:
            share = seconds["EFI, ours"] / seconds["EFI, earthkit-meteo"]
            lines.append(Line("EFI, our time to earthkit's", share, 0.6, at_least=False))
    details = {name: round(1e3 * value, 2) for name, value in seconds.items()}
    return lines, {"device": options.device, "milliseconds": details}


def device(parser: argparse.ArgumentParser) -> None:
    """Where the torch lines run."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")


if __name__ == "__main__":
    sys.exit(
        run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, options=device)
    )
