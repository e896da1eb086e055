"""The default model's ids are llama.cpp's: `data/llama_cpp_smollm.json` holds the texts of its vocabulary tests and the
ids that it makes of them with SmolLM's vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

from genai_lab.tokenizer import Tokenizer


def test_ids_and_texts_of_llama_cpp(model_folder: Path) -> None:
    tokenizer = Tokenizer(model_folder)
    pairs = json.loads((Path(__file__).parent / "data" / "llama_cpp_smollm.json").read_text(encoding="utf-8"))
    assert len(pairs) == 46
    for text, ids in pairs:
        assert tokenizer.encode(text).tolist() == ids
        stream = tokenizer.create_stream()
        assert tokenizer.decode(ids) == "".join([stream.decode(i) for i in ids]) + stream.flush() == text
