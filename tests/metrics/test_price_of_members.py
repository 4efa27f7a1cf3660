"""What a normal distribution gains on ten reliable members that it is made of, as the pages say."""

import numpy as np
import pytest

from ens10.metrics import crps_ensemble, crps_normal


def test_the_price_of_ten_members():
    rng = np.random.default_rng(0)
    members, y = rng.standard_normal((400_000, 10)), rng.standard_normal(400_000)
    raw = crps_ensemble(members, y, estimator="plain", member_dim=1).mean()
    own = crps_normal(members.mean(1), members.std(1, ddof=1), y).mean()
    known = crps_normal(members.mean(1), np.full(len(y), np.sqrt(1.1)), y).mean()
    assert 100 * (1 - own / raw) == pytest.approx(3.2, abs=0.1)
    assert 100 * (1 - known / raw) == pytest.approx(100 * (1 - 1.1**-0.5), abs=0.1)
