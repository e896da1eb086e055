"""`genai_lab.ask`: a question answered in the background and recorded, from the chat template to the last token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genai_lab.config import SearchOptions
from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.generation import GeneratorParams
from genai_lab.kinds import flag, whole
from genai_lab.models import Model
from genai_lab.tokenizer.text import checked_text
from genai_lab.tracing import NULL, Recorder, use_tracer
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
    Inside `with genai_lab.record() as outer:`, the answer is in `outer` as well when it is done.

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
    _check(model, prompt, max_new_tokens, chat, on_text)
    question = Question(prompt, bool(chat))
    params = GeneratorParams(model)
    if "do_sample" not in search_options and any(name in search_options for name in SAMPLING):
        search_options = search_options | {"do_sample": True}
    params.set_search_options(**search_options)
    _check_one_sequence(params.options)
    with use_tracer(NULL):  # whoever records around this call is told when the answer is written
        prompt_tokens = encode_prompt(model, question).size  # a bad prompt is this call's error, not the thread's
    max_length = min(params.options.max_length, model.config.model.context_length)
    check_room(prompt_tokens, max_length, model.config.model.context_length)
    max_length = min(max_length, prompt_tokens + int(max_new_tokens))
    if "min_length" in search_options and params.options.min_length > max_length:
        raise ArgumentError(
            f"min_length is {params.options.min_length}, but this answer ends at {max_length} tokens (the prompt's "
            f"{prompt_tokens} and at most {max_length - prompt_tokens} new ones), which min_length counts, too. Lower "
            f"it, or raise max_new_tokens"
        )
    params.set_search_options(max_length=max_length)
    trace = Trace(Recorder(), model)
    trace._live.ask(params, question, on_text)
    return trace


def _check(model: Model, prompt: Prompt, max_new_tokens: int, chat: bool, on_text: object) -> None:
    if not isinstance(model, Model):
        raise ArgumentTypeError(
            f"ask: model is {_shown(model)}; a genai_lab.Model is allowed: model = genai_lab.load('smollm2')"
        )
    flag("ask: chat", chat)
    if on_text is not None and not callable(on_text):
        raise ArgumentTypeError(
            f"ask: on_text is {_shown(on_text)}; a function of one string is allowed, such as print"
        )
    whole("ask: max_new_tokens", max_new_tokens)
    if max_new_tokens < 1:
        raise ArgumentError(f"ask: max_new_tokens is {max_new_tokens!r}; an int of at least 1 is allowed")
    _check_prompt(prompt, chat)


def _check_prompt(prompt: object, chat: bool) -> None:
    if isinstance(prompt, str):
        checked_text(prompt, "ask: prompt")
        return
    if not chat:
        raise ArgumentTypeError(f"ask: prompt is {_shown(prompt)}; with chat=False a string is allowed")
    if isinstance(prompt, Mapping):
        raise ArgumentTypeError("ask: prompt is one message; a string or a list of messages is allowed: [message]")
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise ArgumentTypeError(
            f"ask: prompt is {_shown(prompt)}; a question as a string, or a list of messages such as "
            f"{{'role': 'user', 'content': '...'}}, is allowed"
        )
    if not prompt:
        raise ArgumentError("ask: prompt is an empty list; at least one message is needed")


def _check_one_sequence(options: SearchOptions) -> None:
    for name in ("batch_size", "num_beams", "num_return_sequences"):
        if getattr(options, name) != 1:
            raise ArgumentError(
                f"ask: {name} is {getattr(options, name)}; ask writes one answer, so 1 is allowed. For several, call "
                f"ask several times, or use an Engine: genai_lab.Engine(model).generate_all(prompts)"
            )


def _shown(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"
