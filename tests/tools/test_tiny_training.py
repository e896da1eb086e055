"""The trainer of the shipped pair: its gradients are those of its loss, and what it writes is what it trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genai_lab.builder import build_model
from tests.builder.run import Runner
from tools.tiny.gguf_out import rounded, write_gguf
from tools.tiny.llama import Floats, Llama, Sizes, Tokens, Weights, cross_entropy, new_weights, views
from tools.tiny.measure import accepted_a_round
from tools.tiny.teacher import shares_of
from tools.tiny.text import BOOK, encode, read_book, train_tokenizer
from tools.tiny.training import Recipe, next_tokens, train

VOCAB_SIZE = 320
SIZES = Sizes(VOCAB_SIZE, num_layers=2, hidden_size=64, intermediate_size=96, num_heads=2, head_size=32)


def lively_weights(seed: int = 0) -> tuple[Floats, Weights]:
    """Weights large enough that every part of the model has a say."""
    flat = new_weights(SIZES, np.random.default_rng(seed))
    weights = views(flat, SIZES)
    weights["token_embd"] *= 10
    for layer in range(SIZES.num_layers):
        weights[f"blk.{layer}.attn_qkv"] *= 3
    return flat, weights


def random_tokens(*shape: int, seed: int = 1) -> Tokens:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, shape)


def random_shares(*shape: int) -> Floats:
    shares = np.random.default_rng(2).random((*shape, VOCAB_SIZE)).astype(np.float32) ** 4
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("wanted", [random_tokens(3, 20, seed=3), random_shares(3, 20)], ids=["tokens", "shares"])
def test_the_gradient_is_the_slope_of_the_loss(wanted: Tokens | Floats) -> None:
    flat, weights = lively_weights()
    model, tokens = Llama(SIZES), random_tokens(3, 20)
    gradient = views(np.zeros_like(flat), SIZES)
    loss = model.loss_and_gradient(weights, tokens, wanted, gradient)
    assert loss == pytest.approx(cross_entropy(model.logits(weights, tokens), wanted)[0], rel=1e-5)
    for name, values in weights.items():
        slope = float(np.linalg.norm(gradient[name]))  # along the gradient, where it is steepest
        step = np.float32(min(0.02, 0.02 / slope))
        before, sides = values.copy(), []
        for sign in (1, -1):
            values[...] = before + sign * step * (gradient[name] / np.float32(slope))
            sides.append(cross_entropy(model.logits(weights, tokens), wanted)[0])
        values[...] = before
        assert (sides[0] - sides[1]) / (2 * float(step)) == pytest.approx(slope, rel=0.02), name


def test_what_is_written_is_what_was_trained(tmp_path: Path) -> None:
    """The file's weights, built by the real builder and run by onnxruntime, give the trainer's own logits."""
    tokenizer = train_tokenizer(read_book().read, VOCAB_SIZE)
    _, weights = lively_weights()
    write_gguf(tmp_path / "model.gguf", "model", weights, SIZES, tokenizer)
    folder = build_model(tmp_path / "model.gguf", tmp_path / "fp32", "fp32", extra_options={"prune_lm_head": False})
    tokens = random_tokens(1, 70)
    ours = Llama(SIZES).logits(rounded(weights), tokens)
    np.testing.assert_allclose(Runner(folder).step(tokens), ours, atol=2e-3 * float(np.abs(ours).max()))


@pytest.mark.slow
def test_training_lowers_the_loss_and_a_seed_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = np.tile(random_tokens(40), 10)
    recipe = Recipe(seed=5, windows=((60, 4, 32), (40, 2, 64)), learning_rate=1e-2, warmup=10)
    first, second = (train(SIZES, text, recipe, next_tokens(text)) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_allclose(values, second[name], atol=1e-5)
    loss, _ = cross_entropy(Llama(SIZES).logits(first, text[None, :64]), text[None, 1:65])
    assert loss < 1.0 < np.log(VOCAB_SIZE)
    assert capsys.readouterr().out.count("step   100") == 2


def test_a_teacher_says_what_the_model_says_at_each_position() -> None:
    _, weights = lively_weights()
    text = random_tokens(768)
    shares = shares_of(weights, SIZES, text)
    logits = Llama(SIZES).logits(weights, text[None, 384:640])[0]
    given = shares(np.array([384 + 128]), 128)[0]  # of a window that starts at 384, and has 128 tokens before these
    np.testing.assert_allclose(given.sum(axis=-1), 1, atol=5e-3)
    np.testing.assert_array_equal(given.argmax(axis=-1), logits[128:].argmax(axis=-1))


def test_the_book_reads_well() -> None:
    book = read_book()
    assert book.read.startswith(
        "ALICE'S ADVENTURES IN WONDERLAND\n\nLewis Carroll\n\nCHAPTER I\n\nDown the Rabbit-Hole"
    )
    assert "when the Rabbit actually TOOK A WATCH OUT OF ITS WAISTCOAT-POCKET, and looked at it" in book.read
    assert "'Fury said to a\nmouse, That he\nmet in the\nhouse," in book.read
    assert book.kept_back.startswith("CHAPTER VIII\n\nThe Queen's Croquet-Ground\n\nA large rose-tree")
    assert book.kept_back.endswith("remembering her own child-life, and the happy summer days.\n\nTHE END")
    assert not any("  " in part or "`" in part for part in (book.read, book.kept_back))
    assert b"\r" not in BOOK.read_bytes()


def test_the_tokenizer_gives_the_text_back_and_is_the_same_each_time() -> None:
    text = read_book().read
    tokenizer = train_tokenizer(text, VOCAB_SIZE)
    assert tokenizer.to_str() == train_tokenizer(text, VOCAB_SIZE).to_str()
    tokens = encode(tokenizer, text)
    assert tokens[0] == tokens[-1] == 0 and 0 not in tokens[1:-1]
    assert tokenizer.decode(tokens.tolist()) == text
    assert tokenizer.decode(tokenizer.encode("Ünseen 猫").ids) == "Ünseen 猫"


@pytest.mark.parametrize(
    ("agrees", "width", "accepted"),
    [("++-+++", 2, 2.0), ("++++", 3, 3.0), ("----", 4, 0.0), ("+-+-+-", 4, 1.0), ("+++++++++", 2, 2.0)],
)
def test_rounds_of_speculation_follow_one_another(agrees: str, width: int, accepted: float) -> None:
    assert accepted_a_round([np.array([letter == "+" for letter in agrees])], width) == accepted
