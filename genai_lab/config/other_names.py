"""What search options are called elsewhere, and what to write here.

Receives a name that is no search option. Returns the next thing to do, for the error. It checks no values.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_TOKENS: Final = (
    "write max_length, which counts the prompt as well: max_length=prompt_tokens + n. genai_lab.ask takes "
    "max_new_tokens, and a turn of an Engine max_generated_tokens."
)
_FEWEST: Final = "write min_length, which counts the prompt as well; a turn of an Engine has min_generated_tokens."
_STOP: Final = (
    "a turn of an Engine has stop_strings: engine.generate_all([prompt], stop_strings=[...]). With a Generator, look "
    "at the text after each token and leave the loop. The tokens that end an answer are the folder's eos_token_id."
)
_PENALTY: Final = "the nearest is repetition_penalty, a factor: 1 changes nothing."
_CUT: Final = "the nearest are min_p and top_p."
_FACTS: Final = "recorded runs have them: with genai_lab.record() as trace: ..., then trace.tokens()."
_SEQUENCES: Final = "write num_return_sequences for several beams, or batch_size for several answers."

_ELSEWHERE: Final = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_completion_tokens", "max_generated_tokens"), _TOKENS),
    **dict.fromkeys(("max_output_tokens", "max_gen_len", "num_predict", "n_predict"), _TOKENS),
    **dict.fromkeys(("min_new_tokens", "min_tokens", "min_generated_tokens"), _FEWEST),
    **dict.fromkeys(("stop", "stop_strings", "stop_sequences", "stop_words", "stopping_criteria"), _STOP),
    **dict.fromkeys(("stop_token_ids", "eos_token_id", "eos_token_ids", "ignore_eos"), _STOP),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "repeat_penalty"), _PENALTY),
    **dict.fromkeys(("typical_p", "top_a", "tfs_z", "epsilon_cutoff", "eta_cutoff", "mirostat"), _CUT),
    **dict.fromkeys(("logprobs", "top_logprobs", "output_scores", "output_logits"), _FACTS),
    **dict.fromkeys(("n", "best_of", "num_sequences"), _SEQUENCES),
    **dict.fromkeys(("seed", "random_state", "sampling_seed"), "write random_seed."),
    **dict.fromkeys(("temp", "t"), "write temperature."),
    **dict.fromkeys(("k", "topk"), "write top_k."),
    **dict.fromkeys(("p", "topp"), "write top_p."),
    **dict.fromkeys(("beam_size", "beam_width", "beams"), "write num_beams."),
    **dict.fromkeys(("sample", "greedy"), "write do_sample: True draws, False takes the most likely token."),
    "num_beam_groups": "groups of beams are not here; num_beams alone is.",
    "chat": "it is an argument of genai_lab.ask.",
    "on_text": "it is an argument of genai_lab.ask.",
}


def what_to_write(name: str, known: Iterable[str]) -> str:
    """The end of the error for an unknown option.

    >>> what_to_write("seed", ["random_seed"]), what_to_write("top_q", ["top_p", "min_p"])
    ('write random_seed.', "did you mean 'top_p'?")
    """
    if name.lower() in _ELSEWHERE:
        return _ELSEWHERE[name.lower()]
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(names)}."
