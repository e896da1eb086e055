"""The text to learn, and its tokenizer.

Receives the book's file. Returns the parts that are read, learned and kept back, and a byte-level BPE tokenizer.
It does not know a model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOOK: Final = Path(__file__).parent / "alice.txt"
END: Final = "<|endoftext|>"  # token 0: stands before the first word and after the last one
INDENT: Final = " " * 4  # of every line of a verse or heading; prose has two spaces at a paragraph's start
BY_HEART_UNTIL: Final = "CHAPTER IV"
KEPT_BACK_FROM: Final = "CHAPTER VIII"


@dataclass(frozen=True)
class Book:
    """The parts of the book."""

    read: str  # chapters I to VII
    by_heart: str  # chapters I to III of these, read again until they stick
    kept_back: str  # chapters VIII to XII, which no model has seen


def read_book(path: Path = BOOK) -> Book:
    """The book with one line a paragraph of prose, verse line by line, and an empty line between paragraphs."""
    paragraphs = re.split(r"\n\s*\n", path.read_text(encoding="ascii"))
    text = "\n\n".join(filter(None, map(_unwrapped, paragraphs)))
    half, cut = text.index(BY_HEART_UNTIL), text.index(KEPT_BACK_FROM)
    return Book(text[:cut].rstrip(), text[:half].rstrip(), text[cut:])


def _unwrapped(paragraph: str) -> str:
    lines = paragraph.splitlines()
    is_verse = all(line.startswith(INDENT) for line in lines)
    text = "\n".join(line.strip() for line in lines)
    if not is_verse:
        text = re.sub(r"(?<=\w-)\n", "", text).replace("\n", " ")  # a word cut at its hyphen is joined again
    return re.sub(r" +", " ", text).replace("`", "'").strip()


def train_tokenizer(text: str, vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer that cuts as GPT-2's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> NDArray[np.int64]:
    """The text's token ids between two end tokens."""
    end = tokenizer.token_to_id(END)
    return np.array([end, *tokenizer.encode(text).ids, end])
