"""A damped Newton method for many small problems at once, in float64."""

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Evaluation = tuple[Floats, Floats, Floats]
_PREDICTED_GAIN = 1e-13  # relative to the value: converged
_ARMIJO = 1e-4
_HALVINGS = 30


class Problems(Protocol):
    """P functions of D parameters."""

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return values (P,), gradients (P, D) and Hessians (P, D, D) at theta (P, D)."""

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:
        """Return the problems for which `mask` (P,) is True."""


def minimise(theta: Floats, problems: Problems, max_iterations: int = 60) -> Floats:
    """Return the parameters at a minimum of each problem.

    The Hessian's eigenvalues are taken by their magnitude, so that every step goes downhill, and
    a step is halved until the value falls enough (Armijo).

    Args:
        theta: (P, D), the start.
        problems: the functions to minimise.
        max_iterations: maximum number of Newton steps.

    Returns:
        (P, D).
    """
    result = theta.copy()
    active = np.arange(len(theta))
    value, gradient, hessian = problems.evaluate(theta)
    for _ in range(max_iterations):
        step = _newton_step(gradient, hessian)
        gain = -(gradient * step).sum(1)
        unconverged = gain > _PREDICTED_GAIN * np.abs(value)
        if not unconverged.any():
            break
        if not unconverged.all():  # finished problems cost nothing further
            active, theta, value = active[unconverged], theta[unconverged], value[unconverged]
            step, gain = step[unconverged], gain[unconverged]
            problems = problems.select(unconverged)
        theta, value, gradient, hessian = _line_search(theta, value, step, gain, problems)
        result[active] = theta
    return result


def _newton_step(gradient: Floats, hessian: Floats) -> Floats:
    """Return Newton steps (P, D) with the Hessians' eigenvalues taken by their magnitude."""
    values, vectors = np.linalg.eigh(hessian)
    magnitude = np.abs(values)
    least = 1e-9 * magnitude.max(1, keepdims=True) + 1e-300
    along = np.einsum("pij,pi->pj", vectors, gradient) / np.maximum(magnitude, least)
    step: Floats = -np.einsum("pij,pj->pi", vectors, along)
    return step


def _line_search(
    theta: Floats, value: Floats, step: Floats, gain: Floats, problems: Problems
) -> tuple[Floats, Floats, Floats, Floats]:
    """Halve the step of each problem until its value falls enough.

    Return the parameters after the step, with value, gradient and Hessian at these.

    Only problems whose value has not fallen enough are evaluated again. One whose value falls at
    no length of the step is at its minimum but for rounding: it stays, with a gradient of 0.
    """
    # a rounding error of slack: near the optimum the fall is below what the sum resolves
    slack = 1e-15 * np.abs(value)
    length = 1.0
    trial = theta + step
    value_there, gradient, hessian = problems.evaluate(trial)
    pending = np.flatnonzero(~(value_there <= value - _ARMIJO * gain + slack))
    for _ in range(_HALVINGS - 1):
        if not pending.size:
            break
        length /= 2
        mask = np.zeros(len(theta), bool)
        mask[pending] = True
        shorter = theta[pending] + length * step[pending]
        new = problems.select(mask).evaluate(shorter)
        enough = new[0] <= (value - _ARMIJO * length * gain + slack)[pending]
        accepted, pending = pending[enough], pending[~enough]
        trial[accepted] = shorter[enough]
        for array, part in zip((value_there, gradient, hessian), new, strict=True):
            array[accepted] = part[enough]
    trial[pending], value_there[pending], gradient[pending] = theta[pending], value[pending], 0.0
    return trial, value_there, gradient, hessian
