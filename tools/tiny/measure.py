"""What the shipped pair is worth: how often the draft says what the target says, and what speculation can gain by it.

    python -m tools.tiny.measure                    the table below, on one thread
    python -m tools.tiny.measure --threads 2

Receives nothing but the shipped pair. Prints numbers. What speculation can gain at most is worked out from the time of
each kind of run and from how long the draft's guesses hold along the target's own greedy answers; what it does gain is
timed on the same answers, plain and speculative ones in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import genai_lab
from tools.tiny.text import read_book

PROMPT, ANSWER, ANSWERS = 48, 96, 24  # tokens of a prompt and of an answer, and how many answers
PAST: Final = 128  # tokens in the cache when a run is timed
WIDTHS: Final = (2, 3, 4, 5, 6)

Agreements = list[NDArray[np.bool_]]
"""Of each answer: whether the draft, given the same tokens, would have said each one."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny.measure", description="Measure the shipped pair.")
    parser.add_argument("--threads", type=int, default=1, help="of onnxruntime (default: 1)")
    threads = parser.parse_args().threads
    book = read_book()
    for title, text in (
        ("chapters I-III, known by heart", book.by_heart),
        ("chapters I-VII, read", book.read),
        ("chapters VIII-XII, never seen", book.kept_back),
    ):
        agreements = agreements_on(text)
        print(f"{title}: the draft agrees with {np.concatenate(agreements).mean():.1%} of the target's greedy tokens")
        if text is book.by_heart:
            learned = agreements
    one, draft = run_time("tiny", 1, threads), run_time("tiny-draft", 1, threads)
    print(f"a decode run on {threads} thread(s): target {one * 1e6:.0f} us, draft {draft * 1e6:.0f} us")
    print("K   accepted a round   target's run of K+1   speed-up at most")
    for width in WIDTHS:
        check, accepted = run_time("tiny", width + 1, threads), accepted_a_round(learned, width)
        gain = (accepted + 1) * one / (width * draft + check)
        print(f"{width}   {accepted:.2f}               {check * 1e6:6.0f} us             {gain:.2f}")
    print("K   measured speed-up of generate_next_token, onnxruntime's default threads")
    for width in WIDTHS:
        print(f"{width}   {speed_up(book.by_heart, width):.2f}")
    return 0


def agreements_on(text: str, answers: int = ANSWERS) -> Agreements:
    """The target goes on greedily from places spread over the text; the draft is asked at each token of the answer."""
    target, draft = genai_lab.load("tiny"), genai_lab.load("tiny-draft")
    tokens = genai_lab.Tokenizer(target).encode(text)
    starts = np.linspace(0, tokens.size - PROMPT, answers).astype(int)
    return [_agreement(target, draft, tokens[start : start + PROMPT]) for start in starts]


def _agreement(target: genai_lab.Model, draft: genai_lab.Model, prompt: NDArray[np.int32]) -> NDArray[np.bool_]:
    said = _generator(target, prompt)
    heard = _generator(draft, prompt)
    agrees: list[bool] = []
    while not said.is_done() and len(agrees) < ANSWER:
        guess = int(np.argmax(heard.get_logits()))
        said.generate_next_token()
        token = said.get_next_tokens()
        agrees.append(guess == int(token[0]))
        heard.append_tokens(token)
    return np.array(agrees)


def _generator(model: genai_lab.Model, prompt: NDArray[np.int32], **speculative: int) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=PROMPT + ANSWER + 1)
    if speculative:
        params.set_speculative_options(**speculative)
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(prompt)
    return generator


def accepted_a_round(agreements: Agreements, width: int) -> float:
    """The draft's tokens that are kept, a round of `width` guesses, when rounds follow one another to an answer's end.

    >>> accepted_a_round([np.array([True, True, False, True, True, True])], 2)  # TT+F, TT+T
    2.0
    """
    accepted = rounds = 0
    for agrees in agreements:
        at = 0
        while at < agrees.size:
            guesses = agrees[at : at + width]
            kept = guesses.size if guesses.all() else int(np.argmin(guesses))
            accepted, rounds, at = accepted + kept, rounds + 1, at + kept + 1
    return accepted / rounds


def speed_up(text: str, width: int, answers: int = 8, rounds: int = 3) -> float:
    """How many times faster the speculative folder writes the target's greedy answers: the median of paired answers."""
    plain, speculative = genai_lab.load("tiny"), genai_lab.load("tiny-speculative")
    tokens = genai_lab.Tokenizer(plain).encode(text)
    ratios = []
    for start in [*np.linspace(0, tokens.size - PROMPT, answers).astype(int)] * rounds:
        prompt = tokens[start : start + PROMPT]
        slow, fast = _generator(plain, prompt), _generator(speculative, prompt, max_draft_tokens=width)
        ratios.append(_timed(lambda: _write(slow)) / _timed(lambda: _write(fast)))  # noqa: B023  called at once
        if slow.get_sequence(0).tolist() != fast.get_sequence(0).tolist():
            raise AssertionError(f"the answer at token {start} is not the same with speculation")
    return float(np.median(ratios))


def _write(generator: genai_lab.Generator) -> None:
    while not generator.is_done():
        generator.generate_next_token()


def run_time(name: str, tokens: int, threads: int, repeats: int = 200) -> float:
    """The median time in seconds of one run of `tokens` tokens after PAST others, outside of any loop in Python."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(Path(genai_lab.model_folder(name)) / "model.onnx"), options)
    binding = session.io_binding()
    binding.bind_cpu_input("input_ids", np.ones((1, tokens), np.int64))
    binding.bind_cpu_input("attention_mask", np.ones((1, PAST + tokens), np.int64))
    kept = _bind_cache(session, binding)
    binding.bind_output("logits")
    times = [_timed(lambda: session.run_with_iobinding(binding)) for _ in range(repeats)]
    del kept
    return float(np.median(times[repeats // 10 :]))


def _bind_cache(session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding) -> Sequence[object]:
    """One buffer is both the past and the present of each layer, as in a real decode."""
    kept = []
    for entry in session.get_inputs():
        if entry.name.startswith("past_key_values."):
            _, heads, _, size = entry.shape
            value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, heads, 2 * PAST, size), np.float32))
            binding.bind_ortvalue_input(entry.name, value)
            binding.bind_ortvalue_output(entry.name.replace("past_key_values", "present"), value)
            kept.append(value)
    return kept


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
