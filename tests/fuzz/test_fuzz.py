"""Damaged files of every kind: values or one error, in bounded time and memory."""

import tracemalloc

import pytest
from fuzztargets import FACTOR, ROOM, TARGETS, corpus_of, execute, mutations

SEED = 0


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_of_the_corpus(name):
    target, corpus = TARGETS[name], corpus_of(name)
    assert corpus
    for content in corpus:
        execute(target, content)
    for number, content in enumerate(mutations(corpus, SEED, 0, target.tested, target.change)):
        try:
            execute(target, content)
        except Exception as error:
            pytest.fail(f"mutation {number}: {error!r} of {content[:80]!r}")


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded_by_the_size(name):
    target, corpus = TARGETS[name], corpus_of(name)
    for content in corpus:  # imports, and what is kept
        execute(target, content)
    tracemalloc.start()
    try:
        for content in [
            *corpus,
            *mutations(corpus, SEED + 1, 0, target.tested // 10, target.change),
        ]:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            execute(target, content)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= ROOM + FACTOR * len(content)
    finally:
        tracemalloc.stop()


def test_mutations_depend_on_seed_and_number_alone():
    corpus = corpus_of("json")
    some = list(mutations(corpus, 3, 0, 50))
    assert list(mutations(corpus, 3, 20, 10)) == some[20:30]
    assert list(mutations(corpus, 4, 0, 50)) != some
    assert len(set(some)) > 40


def test_what_is_no_error_of_the_package_is_a_find():
    """A target with a fault is caught: the harness can fail."""

    def broken(content):
        raise KeyError(content)

    with pytest.raises(KeyError):
        execute(type(TARGETS["json"])(broken, (ValueError,), 1), b"")
