"""Newton's method for many problems at once: minima, and no more evaluations than are needed."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.models.statistical.newton import minimise


@dataclass
class Hyperbolas:
    """sqrt(width^2 + |x - centre|^2), whose Newton steps overshoot where the width is small."""

    width: np.ndarray
    centre: np.ndarray
    evaluated: list

    def select(self, mask):
        return Hyperbolas(self.width[mask], self.centre[mask], self.evaluated)

    def evaluate(self, theta):
        self.evaluated.append(len(theta))
        off = theta - self.centre
        value = np.sqrt(self.width**2 + (off**2).sum(1))
        slope = off / value[:, None]
        bend = np.eye(theta.shape[1]) - slope[:, :, None] * slope[:, None]
        return value, slope, bend / value[:, None, None]


def hyperbolas(width, seed=0):
    centre = np.random.default_rng(seed).normal(size=(len(width), 3))
    return Hyperbolas(np.asarray(width, float), centre, [])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.2, 5), min_size=1, max_size=6), st.integers(0, 5))
def test_each_minimum_is_found_as_if_it_were_alone(width, seed):
    problems = hyperbolas(width, seed)
    start = problems.centre + 3 * np.random.default_rng(seed + 1).normal(size=(len(width), 3))
    found = minimise(start, problems)
    np.testing.assert_allclose(found, problems.centre, atol=1e-5 * max(width))
    for n in range(len(width)):
        alone = problems.select(np.arange(len(width)) == n)
        np.testing.assert_array_equal(minimise(start[n : n + 1], alone)[0], found[n])


def test_only_problems_that_need_a_shorter_step_are_evaluated_again():
    wide, narrow = hyperbolas([10.0] * 99), hyperbolas([0.3])
    both = hyperbolas([10.0] * 99 + [0.3])
    both.centre = np.concatenate([wide.centre, narrow.centre])
    start = both.centre + 1.0
    parts = []
    for problems, rows in ((wide, slice(99)), (narrow, slice(99, None))):
        parts.append(minimise(start[rows], problems))
    np.testing.assert_array_equal(minimise(start, both), np.concatenate(parts))
    assert len(narrow.evaluated) > len(wide.evaluated)
    assert sum(both.evaluated) == sum(wide.evaluated) + sum(narrow.evaluated)


def test_a_value_that_falls_nowhere_ends_the_search_of_that_problem():
    class Misled(Hyperbolas):
        def select(self, mask):
            return Misled(self.width[mask], self.centre[mask], self.evaluated)

        def evaluate(self, theta):
            value, slope, bend = super().evaluate(theta)
            narrow = self.width < 1
            slope[narrow] = 1.0  # not the slope of its value, which is constant
            value[narrow] = 1.0
            return value, slope, bend

    plain = hyperbolas([0.5, 2.0])
    problems = Misled(plain.width, plain.centre, [])
    found = minimise(plain.centre + 1.0, problems)
    np.testing.assert_array_equal(found[0], plain.centre[0] + 1.0)
    np.testing.assert_allclose(found[1], plain.centre[1], atol=1e-6)
    assert problems.evaluated.count(1) > 28  # one search for the first; none in later steps
    assert sum(problems.evaluated) < 50


def test_at_most_as_many_steps_as_allowed():
    problems = hyperbolas([0.5])
    minimise(problems.centre + 1.0, problems, max_iterations=0)
    assert problems.evaluated == [1]
    with pytest.raises(ValueError, match="broadcast"):
        minimise(np.zeros((2, 2)), hyperbolas([1.0, 1.0]))
