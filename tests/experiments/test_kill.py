"""A fit that was killed goes on where its last checkpoint is."""

import signal

import pytest
import realruns
from realruns import command, fit, subprocess_of
from test_run import _fit_arguments, assert_same_weights, log


@pytest.mark.slow
def test_a_killed_fit_is_resumed(store, tmp_path):
    whole = fit("mlp", store, tmp_path / "a" / "mlp", epochs=4)
    kill = "import os, signal, realruns\n" + (
        "realruns.StopAt.on_train_batch_end = lambda s, trainer, *a: "
        "os.kill(os.getpid(), signal.SIGKILL) if trainer.global_step > 7 else None\n"
        "import sys; from ens10.cli import main; main(sys.argv[1:])"
    )
    here = realruns.__file__.rpartition("/")[0]
    code = f"import sys; sys.path.insert(0, {here!r})\n{kill}"
    parts = tmp_path / "b" / "mlp"
    stop = ["--trainer.callbacks+", "realruns.StopAt"]
    stop += ["--trainer.callbacks.epoch", 9, "--trainer.callbacks.batch", 0]
    done = subprocess_of("fit", *_fit_arguments("mlp", store, parts, *stop), code=code)
    assert done.returncode == -signal.SIGKILL
    command("fit", "--run", parts, "--resume", "--quiet")
    assert_same_weights(parts, whole)
    assert log(parts) == log(whole)
