"""The pages of models and platforms are what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.zoo_pages import CONF, FAMILIES, zoo_pages

DOCS = Path(__file__).parents[2] / "docs/zoo"
PAGES = zoo_pages()


def test_the_pages_in_the_docs_are_those_of_the_files() -> None:
    assert {file.name for file in DOCS.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_generated(name: str) -> None:
    hint = "python -m tests.docs.zoo_pages docs/zoo"
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], hint


def test_every_model_stands_on_the_page_of_its_family() -> None:
    for file in (CONF / "model").glob("*.yaml"):
        pages = [page for page, (_, starts) in FAMILIES.items() if file.stem.startswith(starts)]
        assert len(pages) == (file.stem != "hf"), file.stem


def test_a_refused_model_is_told_with_its_reason() -> None:
    assert "`torchtitan`: refused: torchtitan 0.3 has no Llama 4" in PAGES["model_llama.md"]
    assert "| `mixtral_8x7b` | 46,702,792,704 | 12,879,925,248 | yes | yes |" in PAGES["README.md"]
