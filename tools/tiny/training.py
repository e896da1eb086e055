"""The training loop: random windows of the text, gradients on both cores, Adam, a learning rate that rises and falls.

Receives sizes, the text's tokens and a recipe. Returns the trained weights. It does not know what they are written to.

The cores share a step by halves of the batch, each in a thread of its own: numpy lets go of the interpreter inside its
operations. So its matrix products must not use threads themselves (`__main__` sees to it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.tiny.llama import Floats, Llama, Sizes, Tokens, Weights, new_weights, views

THREADS: Final = 2
CHUNK: Final = 1 << 15  # numbers that Adam works on at a time: they stay in the cache
MAX_NORM: Final = 1.0  # of the gradient

Wanted = Callable[[Tokens, int], Tokens | Floats]
"""Starts of windows, [B], and their length S -> what each position should say: tokens [B, S] or shares [B, S, V]."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. Few tokens a step: a text is learned by heart in steps, not in passes."""

    seed: int
    windows: tuple[tuple[int, int, int], ...]  # one after the other: steps, windows a step, tokens a window
    learning_rate: float  # at its highest
    warmup: int = 40  # steps

    @property
    def steps(self) -> int:
        """Steps in all."""
        return sum(steps for steps, _, _ in self.windows)

    def shapes(self) -> Iterator[tuple[int, int]]:
        """Of each step: windows, and tokens a window."""
        for steps, count, length in self.windows:
            yield from ((count, length) for _ in range(steps))

    def rate(self, step: int) -> float:
        """The learning rate: up in a straight line, then down along half a cosine."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / (self.steps - self.warmup)
        return self.learning_rate * (0.01 + 0.99 * 0.5 * (1 + float(np.cos(np.pi * done))))


class Adam:
    """Adam on a flat array, in place."""

    def __init__(self, size: int) -> None:
        self.mean, self.square = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.count = 0

    def step(self, weights: Floats, gradient: Floats, rate: float, pool: ThreadPoolExecutor) -> None:
        """One update."""
        self.count += 1
        rate *= (1 - 0.95**self.count) ** 0.5 / (1 - 0.9**self.count)
        starts = range(0, weights.size, CHUNK)
        list(pool.map(lambda at: self._chunk(weights, gradient, np.float32(rate), slice(at, at + CHUNK)), starts))

    def _chunk(self, weights: Floats, gradient: Floats, rate: np.float32, part: slice) -> None:
        g, mean, square = gradient[part], self.mean[part], self.square[part]
        mean += (g - mean) * np.float32(0.1)  # beta 0.9
        square += (g * g - square) * np.float32(0.05)  # beta 0.95
        weights[part] -= rate * mean / (np.sqrt(square) + np.float32(1e-8))


def next_tokens(text: Tokens) -> Wanted:
    """What the text itself wants said: its next token."""
    return lambda starts, length: text[starts[:, None] + np.arange(1, length + 1)]


def train(sizes: Sizes, text: Tokens, recipe: Recipe, wanted: Wanted, begun: Weights | None = None) -> Weights:
    """Train a new model of the text, or go on with one that was begun, saying now and then how far it is."""
    rng = np.random.default_rng(recipe.seed)
    flat = (
        new_weights(sizes, rng) if begun is None else np.concatenate([begun[name].ravel() for name in sizes.shapes()])
    )
    weights, model, optimiser = views(flat, sizes), Llama(sizes), Adam(flat.size)
    gradients = [np.zeros_like(flat) for _ in range(THREADS)]

    def share(number: int, starts: Tokens, length: int) -> float:
        inputs = text[starts[:, None] + np.arange(length)]
        return model.loss_and_gradient(weights, inputs, wanted(starts, length), views(gradients[number], sizes))

    print(f"{flat.size / 1e6:.2f} million weights, {recipe.steps} steps", flush=True)
    begin, loss = time.monotonic(), float("nan")
    with ThreadPoolExecutor(THREADS) as pool:
        for step, (count, length) in enumerate(recipe.shapes()):
            starts = rng.integers(0, text.size - length, count)
            losses = pool.map(share, range(THREADS), np.split(starts, THREADS), [length] * THREADS)
            now = sum(losses) / THREADS
            loss = now if step == 0 else 0.97 * loss + 0.03 * now
            optimiser.step(flat, _mean_gradient(gradients), recipe.rate(step), pool)
            if step % 100 == 99:
                print(f"step {step + 1:5}  loss {loss:.3f}  {time.monotonic() - begin:5.0f} s", flush=True)
    return weights


def _mean_gradient(gradients: list[Floats]) -> Floats:
    """The mean of the shares, no longer than MAX_NORM."""
    total = gradients[0]
    for other in gradients[1:]:
        total += other
    norm = float(np.linalg.norm(total)) / len(gradients)
    total *= np.float32(min(1.0, MAX_NORM / norm) / len(gradients))
    return total
