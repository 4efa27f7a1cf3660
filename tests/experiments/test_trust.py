"""A run folder of someone else can name no code but this package's and torch's own."""

import re
import zipfile
from pathlib import Path

import pytest
import yaml

import ens10
from ens10.errors import ArgumentError, FileError
from ens10.experiments.runs.trust import (
    checked_config,
    is_user_config,
    record_user_config,
    split_trust,
    write_config,
)
from ens10.named_code import is_class_of_packages

NETWORK = {"class_path": "ens10.models.networks.UNet", "init_args": {"width": 8}}
PLAIN = {
    "seed_everything": 0,
    "trainer": {"max_epochs": 2, "precision": "bf16-mixed", "callbacks": None},
    "model": {
        "class_path": "ens10.models.PostProcessor",
        "init_args": {
            "network": NETWORK,
            "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.001}},
            "scheduler": {"class_path": "torch.optim.lr_scheduler.ExponentialLR"},
        },
    },
    "data": {"store": "my.store.zarr", "target": "t2m", "inputs": ["u10", "z.500"]},
}


def written(folder, content):
    path = folder / "config.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def changed(place, value):
    """The plain configuration with another value at a dotted place."""
    content = yaml.safe_load(yaml.safe_dump(PLAIN))
    *outer, last = place.split(".")
    node = content
    for key in outer:
        node = node[key]
    node[last] = value
    return content


@pytest.mark.parametrize("name", ["/etc/passwd", "rules.yaml", "~/.netrc.yml", "../x.yaml", ""])
def test_a_protocol_of_someone_else_names_no_file(tmp_path, name):
    """Otherwise an error would show what is in any file of the user."""
    (tmp_path / "rules.yaml").write_text("password: secret")
    path = written(tmp_path, changed("data.protocol", name))
    with pytest.raises(FileError, match=re.escape(f"config.yaml: data.protocol is {name!r}")) as e:
        checked_config(path, [], fit=False)
    assert "secret" not in str(e.value)
    for protocol in ("paper", {"test": [2016], "weighting": "cos"}):
        path = written(tmp_path, changed("data.protocol", protocol))
        assert yaml.safe_load(checked_config(path, [], fit=False))["data"]["protocol"] == protocol


def test_a_plain_configuration_passes(tmp_path):
    path = written(tmp_path, PLAIN)
    held = yaml.safe_load(checked_config(path, [], fit=False))
    assert held["model"] == PLAIN["model"]
    assert held["data"] == PLAIN["data"]
    assert held["trainer"] == {"max_epochs": 2, "precision": "bf16-mixed"}


HOSTILE = {
    "a function": ("model.class_path", "os.system"),
    "a function of this package": ("model.class_path", "ens10.cli.main"),
    "a class elsewhere": ("model.init_args.network.class_path", "evil.Net"),
    "a short name": ("model.init_args.network.class_path", "Evil"),
    "no text": ("model.init_args.network.class_path", ["evil.Net"]),
    "a private class": ("model.init_args.network.class_path", "torch.nn.Sequential"),
    "a function as a value": ("model.init_args.scheduler.init_args", {"lr_lambda": "os.getcwd"}),
    "a class in the data": ("data.kind", {"class_path": "evil.Patches"}),
    "a class in place of text": ("model.init_args.network", "evil.Net"),
    "a class in the trainer": ("trainer.strategy", {"class_path": "evil.Strategy"}),
    "a text in the trainer": ("trainer.strategy", "evil.Strategy"),
    "a class in a list": ("model.init_args.extra", [[{"class_path": "evil.Net"}]]),
    "a class by its end": ("model.init_args.network.class_path", "ens10.models.Net.evil"),
    "a class beside": ("model.init_args.network.class_path", "ens10.models.Net\nevil.Net"),
    "a class that a module of ours imports": (
        "model.init_args.network.class_path",
        "ens10.grib.isolated.subprocess.Popen",
    ),
    "one that it imports by name": ("model.class_path", "ens10.experiments.forecasts.bundle.Path"),
    "one that an optimiser's module imports": (
        "model.init_args.scheduler.class_path",
        "torch.optim.lr_scheduler.Counter",
    ),
    "a class that does not exist": ("model.class_path", "ens10.models.Absent"),
    "a module that does not exist": ("model.class_path", "ens10.absent.Absent"),
    "a class as a text in the data": ("data.kind", "evil.Patches"),
    "a class in place of a dataset": ("data.truth", "evil.Patches"),
    "a class in place of an extra": ("data.extras", ["evil.Patches"]),
    "a name that begins alike": ("model.init_args.network.class_path", "ens10_evil.models.Net"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_code_of_others_is_refused_before_it_is_imported(tmp_path, monkeypatch, name):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, changed(*HOSTILE[name]))
    for fit in (False, True):
        with pytest.raises(FileError, match=r"config\.yaml: .*--trust"):
            checked_config(path, [], fit=fit)


def test_a_module_that_is_trusted(tmp_path):
    path = written(tmp_path, changed("model.init_args.network.class_path", "mine.nets.Net"))
    for module in ("mine", "mine.nets", "mine.nets.Net"):
        assert "mine.nets.Net" in checked_config(path, [module], fit=False)
    with pytest.raises(FileError, match=r"If you trust .* add --trust mine\.nets\."):
        checked_config(path, ["min", "mine.net"], fit=False)


@pytest.mark.parametrize("key", ["callbacks", "logger", "plugins", "profiler"])
def test_callbacks_of_others_are_never_built(tmp_path, key):
    call = [{"class_path": "pytorch_lightning.callbacks.LambdaCallback"}]
    path = written(tmp_path, changed(f"trainer.{key}", call))
    for fit in (False, True):
        assert key not in yaml.safe_load(checked_config(path, [], fit=fit))["trainer"]


def test_ones_own_run(tmp_path, monkeypatch):
    """It keeps its callbacks for a resumed training alone; a changed byte makes it a stranger's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    content = changed("model.init_args.network.class_path", "mine.Net")
    content["trainer"]["callbacks"] = [{"class_path": "mine.Callback"}]
    path = written(tmp_path, content)
    assert not is_user_config(path.read_bytes())
    record_user_config(path.read_bytes())
    assert is_user_config(path.read_bytes())
    assert yaml.safe_load(checked_config(path, [], fit=True)) == content
    predict = yaml.safe_load(checked_config(path, [], fit=False))
    assert "callbacks" not in predict["trainer"]
    assert predict["model"] == content["model"]
    write_config(path, content | {"seed_everything": 1}, derived_from=path)
    assert is_user_config(path.read_bytes())
    path.write_bytes(path.read_bytes() + b"\n")
    write_config(tmp_path / "derived.yaml", content | {"seed_everything": 2}, derived_from=path)
    assert not is_user_config((tmp_path / "derived.yaml").read_bytes())
    with pytest.raises(FileError, match="not trained by you here"):
        checked_config(path, [], fit=True)


def test_without_a_home_nothing_is_recorded(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    record_user_config(b"text")
    assert not is_user_config(b"text")


@pytest.mark.parametrize(
    ("place", "name"), [("model.init_args.network", "net"), ("model", "net.yaml")]
)
def test_a_file_beside_it_is_not_read_in_its_place(tmp_path, place, name):
    """The parser would take the content of a file that a value names."""
    (tmp_path / name).write_text("class_path: evil.Net")
    with pytest.raises(FileError, match=r"names the file|is not a mapping"):
        checked_config(written(tmp_path, changed(place, name)), [], fit=False)


@pytest.mark.parametrize(
    "text", ["[", "- a", "trainer: x", "[" * 50_000, "x: 1", "model: a.yaml", "&a {model: *a}"]
)
def test_what_is_no_configuration(tmp_path, text):
    with pytest.raises(FileError, match=r"config\.yaml: "):
        checked_config(written(tmp_path, text), [], fit=False)


def test_the_option():
    given = ["--run", "r", "--trust", "a.b", "--x=1", "--trust=c"]
    assert split_trust(given) == (["--run", "r", "--x=1"], ["a.b", "c"])
    for wrong in (["--trust"], ["--trust="], ["--trust", "--run"], ["--trust", "a/b.py"]):
        with pytest.raises(ArgumentError, match=r"--trust: .* is not the name of a module"):
            split_trust(wrong)


@pytest.mark.parametrize(
    "place", ["model.init_args.network", "data.kind", "data.target", "trainer"]
)
@pytest.mark.parametrize(
    "text",
    [
        '{"class_path": "evil.Net"}',
        "class_path: evil.Net",
        "[evil.Net]",
        '{\t"class_path": "evil.Net"}',
        "{class_path: evil.Net, x: 2001-13-45}",
        "{class_path: evil.Net, x: =}",
        "{class_path: evil.Net, x: " + "[" * 150 + "]" * 150 + "}",
        "&a [*a]",
    ],
)
def test_a_text_with_a_class_inside_is_refused(tmp_path, place, text):
    """The parser would read the text as YAML, and build the class that it names."""
    with pytest.raises(FileError, match=r"config\.yaml: "):
        checked_config(written(tmp_path, changed(place, text)), [], fit=False)


def class_paths(text):
    return set(re.findall(r'class_path"?: *"?([\w.]+)', text))


def test_the_classes_of_all_configurations_and_kept_results_are_those_of_packages():
    top = Path(ens10.__file__).parents[1] / "experiments"
    names = set()
    for path in sorted(top.glob("configs/**/*.yaml")):
        names |= class_paths(path.read_text())
    for path in sorted(top.glob("results/**/cells.zip")):
        with zipfile.ZipFile(path) as cells:
            for name in cells.namelist():
                if name.endswith("config.yaml"):
                    names |= class_paths(cells.read(name).decode())
    names -= {"pytorch_lightning.callbacks.EarlyStopping"}  # only one's own run builds it
    assert len(names) > 40
    assert [name for name in sorted(names) if not is_class_of_packages(name)] == []
