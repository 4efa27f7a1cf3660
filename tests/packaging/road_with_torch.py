"""Classes of the models cross pickle and a spawned worker: python FILE FOLDER_OF_ENS10."""

import multiprocessing
import pickle
import sys
from pathlib import Path

import torch

import ens10
from ens10.loader import EnsembleDataModule
from ens10.models import CRPSLoss, Normal, ResidualNormalHead
from ens10.models.networks import MLP

SHARED = (CRPSLoss, Normal, ResidualNormalHead, MLP, EnsembleDataModule)


def names(classes):
    """Where a process finds these classes."""
    return [f"{c.__module__}.{c.__qualname__}" for c in classes]


def apply(network, features):
    """Outputs as computed by another process."""
    return network(features).tolist()


def main(home):
    """All of it; `home` is the folder that ens10 must come from."""
    if Path(ens10.__file__).resolve().parent != home:
        raise SystemExit(f"ens10 comes from {ens10.__file__}")
    torch.manual_seed(0)
    network, features = MLP(3).eval(), torch.randn(2, 3, 4, 8)
    again = pickle.loads(pickle.dumps(network))
    if type(again) is not MLP or not torch.equal(again(features), network(features)):
        raise SystemExit("a pickled network is another one")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        if pool.apply(names, (SHARED,)) != names(SHARED):
            raise SystemExit("a worker finds other classes")
        if pool.apply(apply, (network, features.detach())) != apply(network, features):
            raise SystemExit("a worker computes something else")
    bare = [name for name in sys.modules if name.split(".")[0] in ("metrics", "models")]
    if bare:
        raise SystemExit(f"imported by their bare names: {bare}")
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
