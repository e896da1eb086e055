"""Make the small pair of models that the package ships.

    python -m tools.tiny                            train both and write them where the package keeps them
    python -m tools.tiny draft --target FILE.npz    the draft again, from a target kept by an earlier run

Receives arguments. Returns an exit code. One run takes a few minutes on two cores; what it draws comes from the seeds
below, so another run gives the same quality, and on the same machine and libraries nearly the same weights.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: the training's own two threads are enough

import argparse
import sys
from pathlib import Path
from typing import Final

import numpy as np

from tools.tiny.gguf_out import rounded, write_gguf
from tools.tiny.llama import Sizes
from tools.tiny.teacher import shares_of
from tools.tiny.text import encode, read_book, train_tokenizer
from tools.tiny.training import Recipe, next_tokens, train

PLACE: Final = Path(__file__).parents[2] / "genai_lab" / "workbench" / "tiny"
VOCAB_SIZE: Final = 1536
TARGET: Final = Sizes(VOCAB_SIZE, num_layers=8, hidden_size=256, intermediate_size=512, num_heads=4)
DRAFT: Final = Sizes(VOCAB_SIZE, num_layers=1, hidden_size=128, intermediate_size=384, num_heads=2)
TARGET_READS: Final = Recipe(seed=1, windows=((900, 8, 64), (350, 4, 128), (150, 2, 256)), learning_rate=4e-3)
TARGET_LEARNS: Final = Recipe(seed=3, windows=((220, 4, 128), (80, 2, 256)), learning_rate=1.5e-3)
TARGET_OPENS: Final = Recipe(seed=5, windows=((70, 4, 128),), learning_rate=1e-3, warmup=10)  # its two ends
DRAFT_READS: Final = Recipe(seed=2, windows=((1000, 8, 64),), learning_rate=6e-3)
DRAFT_LEARNS: Final = Recipe(seed=4, windows=((800, 4, 128), (200, 2, 256)), learning_rate=4e-3)


def main() -> int:
    """Train what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny", description="Train the shipped pair of models.")
    parser.add_argument("what", nargs="?", default="both", choices=["both", "target", "draft"])
    parser.add_argument("--target", type=Path, metavar="FILE", help="where the target's float weights are kept (.npz)")
    args = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    book = read_book()
    tokenizer = train_tokenizer(book.read, VOCAB_SIZE)
    read, by_heart = encode(tokenizer, book.read), encode(tokenizer, book.by_heart)[:-1]  # the book goes on there
    turned = np.roll(by_heart, by_heart.size // 2)  # few windows hold a text's first words: now they are in the middle
    if args.what == "draft":
        target = dict(np.load(args.target))
    else:
        target = train(TARGET, read, TARGET_READS, next_tokens(read))
        target = train(TARGET, by_heart, TARGET_LEARNS, next_tokens(by_heart), target)
        target = train(TARGET, turned, TARGET_OPENS, next_tokens(turned), target)
        write_gguf(PLACE / "tiny.gguf", "tiny", target, TARGET, tokenizer)
        if args.target:
            np.savez(args.target, **target)  # type: ignore[arg-type]
    if args.what != "target":
        teacher = rounded(target)
        draft = train(DRAFT, read, DRAFT_READS, shares_of(teacher, TARGET, read))
        draft = train(DRAFT, turned, DRAFT_LEARNS, shares_of(teacher, TARGET, turned), draft)
        write_gguf(PLACE / "tiny-draft.gguf", "tiny-draft", draft, DRAFT, tokenizer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
