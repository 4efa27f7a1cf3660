"""A run folder from someone else runs no code of theirs, whatever its configuration names."""

import shutil

import pytest
import yaml
from realruns import command, fit, subprocess_of

MARK = "from pathlib import Path\nPath({mark!r}).write_text('run')\nimport torch\n"


@pytest.fixture
def stranger(store, tmp_path, monkeypatch):
    """A run folder that was not made here, a module beside it, and the file that it would write."""
    run = tmp_path / "run"
    fit("mlp", store, run, epochs=1)
    mark = tmp_path / "mark"
    (tmp_path / "evil.py").write_text(MARK.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
    return run, mark


def change(run, **changes):
    path = run / "config.yaml"
    content = yaml.safe_load(path.read_text())
    for place, value in changes.items():
        *outer, last = place.split("__")
        node = content
        for key in outer:
            node = node[key]
        node[last] = value
    path.write_text(yaml.safe_dump(content))


@pytest.mark.slow
def test_a_plain_run_of_someone_else_is_used(stranger):
    run, _ = stranger
    command("predict", "--run", run, "--quiet")
    command("validate", "--run", run, "--quiet")
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 2)


STAGES = [["predict"], ["validate"], ["test"], ["fit", "--resume"]]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_code_of_someone_else_is_not_imported(stranger, stage):
    run, mark = stranger
    change(run, model__init_args__network__class_path="evil.Net")
    done = subprocess_of(stage[0], "--run", run, *stage[1:], "--quiet")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "model.init_args.network.class_path is 'evil.Net'" in line
    assert line.endswith("add --trust evil.")
    assert not mark.exists()


@pytest.mark.parametrize(
    "protocol", [{"__path__": "/etc/passwd"}, {"test": {"__path__": "/etc/passwd"}}, [1], 5, {1: 2}]
)
def test_a_protocol_of_another_form_is_one_error(stranger, capfd, protocol):
    run, _ = stranger
    change(run, data__protocol=protocol)
    capfd.readouterr()
    with pytest.raises(SystemExit):  # refused by the parser, with its usage
        command("predict", "--run", run, "--quiet", status=None)
    error = capfd.readouterr().err
    assert "protocol" in error
    assert "root:" not in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_a_module_is_trusted_by_name(stranger):
    run, mark = stranger
    change(run, model__init_args__network__class_path="evil.Net")
    done = subprocess_of("predict", "--run", run, "--quiet", "--trust", "evil")
    assert mark.exists()  # the user's own word; the module has no class Net
    assert done.returncode == 2


@pytest.mark.parametrize("key", ["callbacks", pytest.param("logger", marks=pytest.mark.slow)])
def test_a_callback_of_someone_else_is_not_built(stranger, key):
    run, mark = stranger
    call = {
        "class_path": "pytorch_lightning.callbacks.LambdaCallback",
        "init_args": {"on_predict_start": "evil.start", "on_fit_start": "evil.start"},
    }
    change(run, **{f"trainer__{key}": [call] if key == "callbacks" else call})
    command("predict", "--run", run, "--quiet")
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 2)
    assert not mark.exists()


def test_ones_own_network_needs_no_option(store, tmp_path, monkeypatch):
    """What `fit` was given is trusted by the commands on the run folder that it made."""
    (tmp_path / "mine.py").write_text(
        "from ens10.models.networks import MLP\n\n\nclass Net(MLP):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    name = "--model.init_args.network.class_path"
    fit("mlp", store, run, name, "mine.Net", epochs=1)
    shutil.move(run, tmp_path / "moved")
    command("predict", "--run", tmp_path / "moved", "--quiet")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
    command("predict", "--run", tmp_path / "moved", "--quiet", status=1)
    command("predict", "--run", tmp_path / "moved", "--quiet", "--trust", "mine")
