"""`genai_lab.ask`: a question answered in the background and recorded, from the chat template to the last token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.generation import GeneratorParams
from genai_lab.models import Model
from genai_lab.tracing import Recorder
from genai_lab.workbench.trace import Trace
from genai_lab.workbench.writing import Prompt, Question, check_room, encode_prompt

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "random_seed")


def ask(
    model: Model,
    prompt: Prompt,
    *,
    max_new_tokens: int = 256,
    chat: bool = True,
    on_text: Callable[[str], None] | None = None,
    **search_options: Any,
) -> Trace:
    """Answer a prompt in the background and record it. Returns at once; shown in a notebook, the answer streams in.

    Answers are written one after another: a second call waits for the first, and its trace is `running` meanwhile.

    Args:
        model: a loaded model.
        prompt: a question, or a list of messages (`{"role": "user", "content": "..."}`), oldest first.
        max_new_tokens: tokens at most; fewer when the model's context ends before.
        chat: put the prompt through the model's chat template; False: the model goes on with the text as it is.
        on_text: called with each piece of text, in the background thread.
        search_options: as for `GeneratorParams.set_search_options`. Naming temperature, top_k, top_p, min_p or
            random_seed means sampling, unless do_sample says otherwise.

    Raises:
        ArgumentError, ArgumentTypeError: a bad argument or option.
        CapacityError: the prompt leaves no room for an answer.
        TemplateError: the model has no chat template, or it refuses the messages.

    >>> trace = genai_lab.ask(model, "What is the capital of France?")     # doctest: +SKIP
    >>> trace.wait().text()                                                # doctest: +SKIP
    'The capital of France is Paris.'
    """
    _check(model, prompt, max_new_tokens, chat)
    question = Question(prompt, chat)
    params = GeneratorParams(model)
    if "do_sample" not in search_options and any(name in search_options for name in SAMPLING):
        search_options = search_options | {"do_sample": True}
    params.set_search_options(**search_options)
    prompt_tokens = encode_prompt(model, question).size  # a bad prompt is this call's error, not the thread's
    max_length = min(params.options.max_length, model.config.model.context_length)
    check_room(prompt_tokens, max_length)
    params.set_search_options(max_length=min(max_length, prompt_tokens + max_new_tokens))
    trace = Trace(Recorder(), model)
    trace._live.ask(params, question, on_text)
    return trace


def _check(model: Model, prompt: Prompt, max_new_tokens: int, chat: bool) -> None:
    if not isinstance(model, Model):
        raise ArgumentTypeError(
            f"ask: model is {type(model).__name__}; a genai_lab.Model is allowed: model = genai_lab.load('smollm2')"
        )
    if not chat and not isinstance(prompt, str):
        raise ArgumentTypeError(f"ask: prompt is {type(prompt).__name__}; with chat=False a string is allowed")
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ArgumentError(f"ask: max_new_tokens is {max_new_tokens!r}; an int of at least 1 is allowed")
