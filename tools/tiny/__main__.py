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
TARGET_RECIPE: Final = Recipe(seed=1, windows=((900, 8, 64), (350, 4, 128), (150, 2, 256)), learning_rate=4e-3)
DRAFT_RECIPE: Final = Recipe(seed=2, windows=((3000, 8, 64), (500, 2, 256)), learning_rate=6e-3)


def main() -> int:
    """Train what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny", description="Train the shipped pair of models.")
    parser.add_argument("what", nargs="?", default="both", choices=["both", "target", "draft"])
    parser.add_argument("--target", type=Path, metavar="FILE", help="where the target's float weights are kept (.npz)")
    args = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    learned = read_book().learned
    tokenizer = train_tokenizer(learned, VOCAB_SIZE)
    text = encode(tokenizer, learned)
    if args.what != "draft":
        target = train(TARGET, text, TARGET_RECIPE, next_tokens(text))
        write_gguf(PLACE / "tiny.gguf", "tiny", target, TARGET, tokenizer)
        if args.target:
            np.savez(args.target, **target)  # type: ignore[arg-type]
    else:
        target = dict(np.load(args.target))
    if args.what != "target":
        shares = shares_of(rounded(target), TARGET, text)
        draft = train(DRAFT, text, DRAFT_RECIPE, shares)
        write_gguf(PLACE / "tiny-draft.gguf", "tiny-draft", draft, DRAFT, tokenizer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
