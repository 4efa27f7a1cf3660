"""The distribution with mean and spread of the raw members, against closed forms."""

import numpy as np
import properscoring
import pytest
import torch
from scipy import integrate, stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.statistical import Raw, RawNormal

MEMBERS = np.random.default_rng(0).gamma(2.0, 1.5, size=(3, 10, 2, 4)).astype(np.float32)
TRUTH = np.random.default_rng(1).gamma(2.0, 1.5, size=(3, 2, 4)).astype(np.float32)


def batch(members=MEMBERS):
    mean, std = members.mean(1), members.std(1, ddof=1)
    return {"raw_mean": torch.from_numpy(mean), "raw_std": torch.from_numpy(std)}


def crps(method, members=MEMBERS):
    forecast = method(batch(members))
    return forecast.crps(torch.from_numpy(TRUTH)).numpy()


def test_its_crps_is_properscorings():
    mean, std = (MEMBERS.astype(float).mean(1), MEMBERS.astype(float).std(1, ddof=1))
    expected = properscoring.crps_gaussian(TRUTH.astype(float), mean, std)
    np.testing.assert_allclose(crps(RawNormal()), expected, rtol=2e-5)


def test_its_crps_is_the_closed_form_with_the_divisor_n_less_1():
    mean, std = (MEMBERS.astype(float).mean(1), MEMBERS.astype(float).std(1, ddof=1))
    z = (TRUTH - mean) / std
    pdf, cdf = stats.norm.pdf(z), stats.norm.cdf(z)
    expected = std * (z * (2 * cdf - 1) + 2 * pdf - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(RawNormal()), expected, rtol=2e-5)


@pytest.mark.parametrize("family", ["truncated_normal", "censored_normal"])
def test_bounded_forms_have_mean_and_spread_before_the_bound(family):
    found = crps(RawNormal(family, lower=0.0))
    mean, std = MEMBERS.astype(float).mean(1), MEMBERS.astype(float).std(1, ddof=1)
    for at in [(0, 0, 0), (2, 1, 3), (1, 0, 2)]:
        normal = stats.norm(mean[at], std[at])
        below = normal.cdf(0.0) if family == "truncated_normal" else 0.0

        def cdf(x, normal=normal, below=below):
            return (normal.cdf(x) - below) / (1 - below)

        y = float(TRUTH[at])
        lower = integrate.quad(lambda x, cdf=cdf: cdf(x) ** 2, 0, y)[0]
        upper = integrate.quad(lambda x, cdf=cdf: (1 - cdf(x)) ** 2, y, 60)[0]
        np.testing.assert_allclose(found[at], lower + upper, rtol=1e-5)


def test_members_that_all_agree_are_a_point():
    same = np.zeros_like(MEMBERS)
    for method in (RawNormal(), RawNormal("censored_normal", lower=0.0)):
        np.testing.assert_allclose(crps(method, same), TRUTH, rtol=1e-6)


def test_it_is_solved_without_a_fit_and_scores_better_than_reliable_members():
    method = RawNormal()
    method.collect(batch())
    method.solve()
    assert method.is_solved
    assert method.fitted_parameters == 0
    rng = np.random.default_rng(2)
    members = rng.normal(size=(400, 10, 10, 10)).astype(np.float32)
    truth = torch.from_numpy(rng.normal(size=(400, 10, 10)).astype(np.float32))
    raw = Raw()({**batch(members), "members": torch.from_numpy(members)}).crps(truth).mean()
    normal = method(batch(members)).crps(truth).mean()
    # E CRPS of ten reliable members is 1.1 / sqrt(pi)
    torch.testing.assert_close(raw, torch.tensor(1.1 / np.sqrt(np.pi)).float(), rtol=0.01, atol=0)
    assert 100 * float(1 - normal / raw) == pytest.approx(3.22, abs=0.3)


def test_bad_input_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'truncated_normal'"):
        RawNormal("truncated_norml", lower=0.0)
    with pytest.raises(ArgumentError, match="normal takes no bounds"):
        RawNormal(lower=0.0)
    with pytest.raises(ArgumentError, match="censored_normal has no bound"):
        RawNormal("censored_normal")
