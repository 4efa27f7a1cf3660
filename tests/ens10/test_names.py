import pytest

from ens10.errors import FileError, UnknownNameError
from ens10.source.names import Names, read_names


def written(tmp_path, text):
    path = tmp_path / "names.yaml"
    path.write_text(text)
    return path


def test_a_mapping(tmp_path):
    text = "variables: {a: t2m}\ndimensions: {lat: latitude}\nstep: {units: months, first: 1}\n"
    want = Names({"a": "t2m"}, {}, {"lat": "latitude"}, "months", 1)
    assert read_names(written(tmp_path, text)) == want
    assert read_names(written(tmp_path, "variables:\n")) == Names()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dimension: {a: b}", "did you mean 'dimensions'"),
        ("step: {unit: h}", "did you mean 'units'"),
        ("step: {units: month}", "did you mean 'months'"),
    ],
)
def test_unknown_keys_get_a_suggestion(tmp_path, text, reason):
    with pytest.raises(UnknownNameError, match=reason):
        read_names(written(tmp_path, text))


@pytest.mark.parametrize(
    "text", ["[1, 2]", "a: [", "variables: [a]", "step: {first: x}", "step: 3"]
)
def test_what_is_no_mapping(tmp_path, text):
    with pytest.raises(FileError, match=r"names\.yaml"):
        read_names(written(tmp_path, text))


def test_missing_file(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_names(tmp_path / "none.yaml")
