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
    ("text", "error", "words"),
    [
        ("dimension: {a: b}", UnknownNameError, "did you mean 'dimensions'"),
        ("step: {unit: h}", UnknownNameError, "did you mean 'units'"),
        ("step: {units: month}", UnknownNameError, "did you mean 'months'"),
        ("[1, 2]", FileError, r"names\.yaml"),
        ("a: [", FileError, r"names\.yaml"),
        ("variables: [a]", FileError, r"names\.yaml"),
        ("step: {first: x}", FileError, r"names\.yaml"),
        ("step: 3", FileError, r"names\.yaml"),
        (None, FileError, "no such file"),
    ],
)
def test_what_is_no_mapping(tmp_path, text, error, words):
    path = tmp_path / "none.yaml" if text is None else written(tmp_path, text)
    with pytest.raises(error, match=words):
        read_names(path)
