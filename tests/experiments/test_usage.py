"""Mistakes on the command line: a line that names the key, and what was probably meant."""

import pytest
import realruns

from ens10.cli import main
from ens10.usage import brief

UNET = realruns.config_path("unet")


def usage_error(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    assert stopped.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") <= 4
    assert len(told.err) < 500
    assert told.err.startswith("ens10: ")
    assert "Traceback" not in told.err
    return told.err


NETWORK = "--model.init_args.network.init_args"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data.stor", "x"], ["data.stor'", "did you mean '--data.store'"]),
        ([f"{NETWORK}.in_chanels", "3"], ["in_chanels", "did you mean 'in_channels'"]),
        ([f"{NETWORK}.in_channels", "abc"], ["model", "network", "in_channels", "abc", "int"]),
        (["--tariner.max_epochs", "2"], ["did you mean '--trainer.max_epochs'"]),
        (["--trainer.max_epochs", "x"], ["trainer.max_epochs", "value: x", "int"]),
        (["--data.batch_size", "2.5"], ["data.batch_size", "2.5", "int"]),
        (["--data.extras", "[locaton]"], ["data.extras", "'location'", "locaton"]),
        (["--data.predict_split", "tst"], ["data.predict_split", "tst", "'test'"]),
        (["--model.init_args.head", "ens10.models.ResidualNormalHed"], ["ResidualNormalHead"]),
        (["--model", "torch.nn.Linear"], ["torch.nn.Linear", "LightningModule"]),
        (["--seed_everything", "abc"], ["seed_everything", "abc"]),
        (["--quet"], ["did you mean '--quiet'"]),
        (["stray"], ["stray"]),
    ],
)
def test_a_mistake_among_the_options(capsys, tmp_path, arguments, words):
    given = ["--config", UNET, "--run", tmp_path / "run", *arguments]
    store = [] if "--data.stor" in arguments else ["--data.store", "x"]
    message = usage_error(capsys, "fit", *given, *store)
    for word in words:
        assert word in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("extras:", "extra:", ["'data.extra'", "did you mean 'data.extras'"]),
        ("zero_init:", "zero_int:", ["zero_int", "did you mean 'zero_init'"]),
        ("trainer:", "trainr:", ["trainr.max_epochs", "did you mean 'trainer.max_epochs'"]),
        ("networks.UNet", "networks.UNat", ["UNat", "did you mean 'UNet'"]),
        ("models.PostProcessor", "models.PostProcesor", ["did you mean 'PostProcessor'"]),
        ("zero_init: true", "in_channels: abc", ["in_channels", "abc", "int"]),
        ("{target", "[target", ["config"]),
    ],
)
def test_a_mistake_in_the_configuration(capsys, tmp_path, right, wrong, words):
    text = UNET.read_text()
    assert right in text
    config = tmp_path / "config.yaml"
    config.write_text(text.replace(right, wrong))
    run = ["--data.store", "x", "--run", tmp_path / "run"]
    message = usage_error(capsys, "fit", "--config", config, *run)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", UNET], ["--data.store is required"]),
        (["--data.store", "x"], ["--model", "--config"]),
        (["--config", "/gone/gone.yaml"], ["/gone/gone.yaml"]),
    ],
    ids=["store", "model", "configuration"],
)
def test_what_is_missing_is_named(capsys, tmp_path, arguments, words):
    message = usage_error(capsys, "fit", *arguments, "--run", tmp_path / "run")
    for word in words:
        assert word in message


def test_a_value_that_a_second_type_takes_is_no_error(store, tmp_path):
    """Each of several possible types has its own parser, whose error is not the last word."""
    plateau = "torch.optim.lr_scheduler.ReduceLROnPlateau"
    options = ["--model.init_args.scheduler", plateau, "--data.protocol.val", 2]
    run = realruns.fit("mlp", store, tmp_path / "mlp", *options)
    assert "ReduceLROnPlateau" in (run / "config.yaml").read_text()
    assert "val: 2" in (run / "config.yaml").read_text()


def test_a_long_message_is_one_line_and_is_cut():
    line = brief(TypeError("first line\n\n  - second\n" + "x" * 5000))
    assert line.startswith("first line - second x")
    assert len(line) < 310
