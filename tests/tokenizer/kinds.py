"""Tokenizers of every kind, trained or put together here on a small text in many languages, as model folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "Hello world, this is a test of tokens. The quick brown fox jumps over the lazy dog. " * 3,
    "Привет мир, как дела? Это тест.",
    "你好世界。今天天气很好。",
    "こんにちは世界",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 family 🎉🎉 emoji 😀 naïve café Ω≈ç√",
    "def f(x):\n    return x+1\n\n\t# comment",
    "don't can't it's we've they're I'm .",
]
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level() -> Tokenizer:
    """GPT-2's kind: tokens are bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|im_start|>"])
    tokenizer.add_tokens(["<think>", "NOT SPECIAL"])
    return tokenizer


def word_piece() -> Tokenizer:
    """BERT's kind: `##` continues a word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _bytes_and_letters() -> dict[str, int]:
    vocab = {token: n for n, token in enumerate(SPECIALS)}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for letter in sorted(set("".join(TEXTS).replace(" ", "▁"))):
        if ord(letter) < 0x500 or letter in "▁你好":  # the others need byte tokens
            vocab.setdefault(letter, len(vocab))
    return vocab


def unigram() -> Tokenizer:
    """SentencePiece's Unigram with Metaspace and byte fallback."""
    vocab = [(token, 0.0 if token in SPECIALS else -8.0) for token in _bytes_and_letters()]
    vocab += [("▁the", -3.0), ("▁a", -3.0), ("ing", -4.0), ("llo", -4.0), ("▁▁", -5.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def llama() -> Tokenizer:
    """Llama 2's kind: BPE with byte fallback, spaces as `▁`, the first one stripped."""
    vocab, merges = _bytes_and_letters(), []
    for left, right in [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("h", "e"), ("l", "l"), ("▁", "a")]:
        merges.append((left, right))
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def word_ends() -> Tokenizer:
    """OpenAI GPT's kind: `</w>` ends a word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIALS, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def ctc() -> Tokenizer:
    """wav2vec's kind: letters, repeats dropped, `|` between words."""
    letters = dict.fromkeys("abcdehilorstw'.")
    vocab = {token: n for n, token in enumerate([*SPECIALS, "|", *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.CTC(pad_token="<pad>")
    return tokenizer


def without_decoder() -> Tokenizer:
    """Whole words and no decoder."""
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate([*SPECIALS, *words])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def text_stages() -> Tokenizer:
    """Nobody's: replacing and stripping after the tokens have become one text."""
    tokenizer = byte_level()
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Fuse(), decoders.Replace("ll", "LL"), decoders.Strip(".", 2, 0)]
    )
    return tokenizer


def at_the_end() -> Tokenizer:
    """Nobody's: a pattern over the whole text, which cannot be known before the end."""
    tokenizer = byte_level()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(Regex("l+o"), "LO")])
    return tokenizer


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    make.__name__: make
    for make in (byte_level, word_piece, unigram, llama, word_ends, ctc, without_decoder, text_stages, at_the_end)
}


def save_folder(tokenizer: Tokenizer, folder: Path, *, model_vocab_size: int | None = None, **config: Any) -> Path:
    """A model folder without a model: tokenizer.json, tokenizer_config.json and genai_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "GPT2Tokenizer", "chat_template": CHAT_TEMPLATE, **marks, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = {
        "type": "llama",
        "context_length": 64,
        "vocab_size": model_vocab_size or tokenizer.get_vocab_size(),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder": {"filename": "model.onnx"},
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {}}), encoding="utf-8")
    return folder
