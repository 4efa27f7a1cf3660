"""Pages stay short: words of docs/ and all READMEs, of the changelog, and the README's sentences.

What a command writes (between `<!-- ... -->` and `<!-- end ... -->`, and the cards in docs/cards/)
does not count, nor do signs such as the bars of tables.
"""

import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS, MOST_WORDS_OF_CHANGES = 33_000, 3_000
MOST_LINES, MOST_WORDS_OF_A_SENTENCE = 100, 30
GENERATED = re.compile(r"<!-- (?!end)[^>]*-->.*?<!-- end[^>]*-->", re.S)
FOLDERS = ("benchmarks", "docs", "ens10", "experiments", "metrics", "models", "notebooks", "tests")


def words(text):
    """The number of words, with a letter or a digit, that a person wrote."""
    return sum(bool(re.search(r"\w", word)) for word in GENERATED.sub("", text).split())


def pages():
    """The pages that count, once each where folders are links to each other."""
    found = chain.from_iterable((ROOT / folder).rglob("*.md") for folder in FOLDERS)
    written = (p for p in found if p.is_relative_to(ROOT / "docs") or p.name == "README.md")
    left_out = (ROOT / "docs" / "cards", ROOT / "notebooks" / "work")
    kept = {p.resolve() for p in written if not any(map(p.is_relative_to, left_out))}
    return sorted(kept | {ROOT / "README.md"})


def sentences(text):
    """The sentences of a page's paragraphs and lists; code, tables and pictures are left out."""
    text = re.sub(r"```.*?```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.S)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", text):
        if not paragraph.startswith(("    ", "|", "#")):
            yield from re.split(r"(?<=[.:;!?])\s+(?=[`A-Z])", " ".join(paragraph.split()))


def test_docs_and_readmes_are_short():
    counts = {path.relative_to(ROOT).as_posix(): words(path.read_text()) for path in pages()}
    assert counts["docs/data.md"] > 1000
    assert len(counts) > 50
    longest = sorted(counts, key=counts.__getitem__)[-5:]
    total = sum(counts.values())
    assert total <= MOST_WORDS, f"{total} words; the longest pages are {longest}"


def test_the_changelog_is_short():
    assert words((ROOT / "CHANGELOG.md").read_text()) <= MOST_WORDS_OF_CHANGES


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES
    found = list(sentences(text))
    assert len(found) > 15
    assert [one for one in found if words(one) > MOST_WORDS_OF_A_SENTENCE] == []


def test_what_counts_as_a_word_and_a_sentence():
    table = (
        "| a | b |\n|---|---|\n<!-- made by x -->\n| many words of a table |\n<!-- end -->\nlast"
    )
    assert words(table) == 3
    page = (
        "# Head\n\nOne two. `three` four\nfive.\n\n    code. Code\n\n- six. [Seven](a.md) eight\n"
    )
    assert list(sentences(page)) == ["One two.", "`three` four five.", "- six.", "Seven eight"]
