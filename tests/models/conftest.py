import pytest
import torch


@pytest.fixture
def make_batches():
    """Batches of a small world: truth = raw mean + 1 + normal of twice the raw spread."""

    def make(count=6, dates=2, grid=(8, 12), channels=4, members=5, base=280.0, missing=False):
        g = torch.Generator().manual_seed(0)
        batches = []
        for i in range(count):
            mean = base + 5 * torch.randn(dates, *grid, generator=g)
            std = 0.5 + torch.rand(dates, *grid, generator=g)
            noise = torch.randn(dates, members, *grid, generator=g)
            batch = {
                "features": torch.randn(dates, channels, *grid, generator=g),
                "raw_mean": mean,
                "raw_std": std,
                "target": mean + 1 + 2 * std * torch.randn(dates, *grid, generator=g),
                "weights": 0.5 + torch.rand(*grid, generator=g).expand(dates, *grid).clone(),
                "dates": 86400 * (torch.arange(dates) + dates * i),
                "members": mean[:, None] + std[:, None] * noise,
            }
            if missing:  # sea: no truth and no raw ensemble there
                for key in ("raw_mean", "raw_std"):
                    batch[key][:, 0, :3] = torch.nan
                batch["weights"][:, 0, :3] = 0
                batch["target"][:, 0, :3] = 0
            batches.append(batch)
        return batches

    return make
