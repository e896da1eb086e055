"""What each member of onnxruntime-genai's Python module is here, and why where it is not the same.

The one place where such reasons are written. `tools.compat` makes docs/COMPATIBILITY.md of it; the tests hold each
claim against both libraries (`compat_calls`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """What a row claims."""

    SAME = "same"
    """Called as there, it answers as there."""
    MORE = "same, more"
    """As there; and it also takes, gives or checks what there it does not."""
    DIFFERS = "differs"
    """It is here, and some calls answer otherwise; the reason says which and why."""
    ABSENT = "not here"
    """The name exists and refuses, with the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One member's."""

    status: Status
    why: str = ""


def _rows() -> dict[str, Row]:
    rows = {
        name if not owner else f"{owner}()" if name == "()" else f"{owner}.{name}": Row(Status.SAME)
        for owner, names in SAME.items()
        for name in names.split()
    }
    for status, reasons in ((Status.MORE, MORE), (Status.DIFFERS, DIFFERS), (Status.ABSENT, ABSENT)):
        for member, why in reasons.items():
            if member in rows:
                raise ValueError(f"{member} has two rows")
            rows[member] = Row(status, why)
    return rows


_ENUM = "() __hash__ __index__ __int__ name value"

SAME: dict[str, str] = {
    "": "disable_telemetry_events enable_telemetry_events is_cuda_available is_dml_available "
    "register_execution_provider_library set_log_callback set_log_options unregister_execution_provider_library",
    "Adapters": "() unload",
    "Audios": "open open_bytes",
    "Config": "add_model_data append_provider clear_decoder_provider_options_hardware_device_id "
    "clear_decoder_provider_options_hardware_device_type clear_decoder_provider_options_hardware_vendor_id "
    "clear_providers remove_model_data set_decoder_provider_options_hardware_device_id "
    "set_decoder_provider_options_hardware_device_type set_decoder_provider_options_hardware_vendor_id "
    "set_provider_option",
    "Engine": "create_event_buffer create_request get_speculative_stats has_pending_requests",
    "EngineErrorCode": f"{_ENUM} __members__ CAPACITY_DEFERRED ENGINE_CONTRACT_FAILURE ENGINE_EXECUTION_FAILURE "
    "EXECUTION_CAPACITY_EXCEEDED NONE REQUEST_UNSERVICEABLE RETRYABLE_EXECUTION",
    "EngineEvent": "error_code finish_reason flags matched_stop_string_index request token turn_id usage",
    "EngineEventBuffer": "__len__",
    "EngineEventFlags": f"{_ENUM} __members__ __or__ CAPACITY_BLOCKED FAILED NONE RETRYABLE TOKEN TURN_FINISHED",
    "FinishReason": f"{_ENUM} CANCELLED EOS FAILED MAX_GENERATED_TOKENS MAX_SESSION_TOKENS NONE STOP_STRING",
    "Generator": "get_input get_next_tokens is_done set_hidden_states set_model_input snapshot_state token_count",
    "GeneratorParams": "() get_search_options get_speculative_options set_guidance set_speculative_options",
    "Images": "open_bytes",
    "Model": "create_multimodal_processor create_streaming_processor device_type type",
    "MtpGenerator": "() append_tokens generate_next_token get_sequence get_stats is_done reset",
    "MultiModalProcessor": "create_stream decode",
    "NamedTensors": "() __delitem__ __getitem__ __len__ __setitem__ keys",
    "Request": "begin_turn cancel_turn close rewind_to_start_of_turn",
    "RequestOptions": "() set_max_session_tokens",
    "Tensor": "() as_numpy shape",
    "Tokenizer": "bor_token_id bos_token_id bot_token_id create_stream encode_batch eor_token_id eos_token_ids "
    "eot_token_id pad_token_id",
    "TurnOptions": "clear_guidance clear_seed reset set_do_sample set_guidance set_max_generated_tokens "
    "set_min_generated_tokens set_no_repeat_ngram_size set_repetition_penalty set_temperature "
    "set_top_k set_top_p",
    "TurnUsage": "cached_prompt_tokens generated_tokens prompt_tokens",
}

_COMPARED = "also equal to, and ordered among, plain numbers; several flags at once have their names joined by |"

MORE: dict[str, str] = {
    "Adapters.load": "a pathlib.Path, too",
    "Config()": "a pathlib.Path, too; a model package whose variants are all for one provider",
    "Config.overlay": "options of a generation that the overlay sets can be read back: config.search_options()",
    "Config.from_package_ep": "the published builds refuse every package ('requires building ... against ONNX Runtime "
    "with the OrtModelPackageApi'); here the variant of a provider is chosen by its name",
    "Engine()": "a policy, sizes, prefix caching, a backend and exactness by keyword; without them the folder's",
    "EngineErrorCode.__eq__": _COMPARED,
    "EngineErrorCode.__ne__": _COMPARED,
    "EngineEventBuffer.__getitem__": "slices, too",
    "EngineEventFlags.__and__": "the result is a flag again, with a name; as a number it is the same",
    **{f"EngineEventFlags.__{name}__": _COMPARED for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "FinishReason.__eq__": _COMPARED,
    "FinishReason.__ne__": _COMPARED,
    "FinishReason.__members__": "one more, STOPPING_CRITERION: a person's own rule ended the answer",
    "Generator()": "model= and params= by name; a context manager",
    "Generator.set_inputs": "for any model; images in later prompts, too, which version 0.18 cannot read",
    "GeneratorParams.set_search_options": "min_p; numpy's numbers; all options are checked before any is changed",
    "Images.open": "a pathlib.Path, too; a folder is an error that says so",
    "Model()": "a pathlib.Path, too; a context manager",
    "NamedTensors.__contains__": "anything may be asked for; only names are in it",
    "Tokenizer()": "a pathlib.Path, too",
    "Tokenizer.apply_chat_template": "messages and tools as lists of dicts, too; further arguments reach the template. "
    "Rendered by Jinja2 itself, in its sandbox, as Hugging Face's libraries do",
    "Tokenizer.decode_batch": "arrays and lists of lists, too",
    "TurnOptions()": "the request may be left out; nothing of it is needed",
}

_MEDIA = "turning files of images and sounds into tensors is not part of a workbench for text; tensors are taken"

DIFFERS: dict[str, str] = {
    "get_current_gpu_device_id": "0; there it crashes the process on a machine without a GPU",
    "set_current_gpu_device_id": "0 is accepted, other numbers are an error; there it crashes the process on a machine "
    "without a GPU",
    "is_openvino_available": "whether the installed onnxruntime has the provider; there True everywhere",
    "is_qnn_available": "whether the installed onnxruntime has the provider; there True everywhere",
    "is_webgpu_available": "whether the installed onnxruntime has the provider; there True everywhere",
    "Engine.get_capabilities": "an engine here batches continuously and says its own sizes, and what holds of its "
    "numbers; there an engine on a CPU batches statically, four at a time",
    "Engine.max_draft_tokens_per_proposal": "16 where the graph gives all logits: a CPU verifies them, too; there 0",
    "EngineCapabilities.configured_max_batch_size": "the engine's own; there always 4 on a CPU",
    "EngineCapabilities.max_request_length": "the engine's own limit; there 0, no limit of its own",
    "EngineCapabilities.max_scheduled_tokens": "the engine's own limit; there 0, no limit of its own",
    "Generator.append_tokens": "token ids are integers of the vocabulary: anything else is an error, where there it is "
    "cut to an integer, or read past the end of a table. After a generated token, that token is read, too; there "
    "(0.18) it never reaches the cache",
    "Generator.generate_next_token": "one token a call; there (0.18) the first call after rewind_to(n) puts the token "
    "back that was cut off and adds one",
    "Generator.get_logits": "before any token it is an error; there the numbers are zeros that no model gave",
    "Generator.get_output": "the logits are those of a prompt's last piece (chunk_size tokens, 256 unless it is set); "
    "there of the whole prompt",
    "Generator.get_sequence": "an index of no sequence is an error (also an IndexError); there an empty array",
    "Generator.get_speculative_stats": "under a grammar, rounds are counted as without one; there a round has no bonus",
    "Generator.rewind_to": "a grammar, a pipeline, an encoder's text and recurrent states go back with the tokens, "
    "from a snapshot or by reading again, or nothing changes and the reason is said; there a grammar begins anew, and "
    "the others leave wrong text or are refused",
    "Generator.set_active_adapter": "in a model of several graphs the adapter changes the graph whose weights it has; "
    "there it is silently ignored",
    "Generator.set_logits": "before any token it is an error; there numbers of any size are accepted, and the "
    "first token is chosen from them without the model",
    "Generator.set_runtime_option": "enable_profiling is refused: onnxruntime's Python package cannot profile single "
    "runs, a recording measures each of their stages",
    "Engine.run": "with a graph that reads block tables, it goes on after a piece of a prompt until there is an event; "
    "there it comes back with none",
    "MultiModalProcessor.__call__": f"text is prepared; images= and audios= are refused: {_MEDIA}",
    "Request.set_draft_tokens": "verified on a CPU, too; there refused by the static engine",
    "Tensor.data": "a read-only memoryview of the bytes; there a capsule that Python cannot look into",
    "Tensor.type": "numpy's dtype; there a TypeError, because its type for that is not known to Python",
    "Tokenizer.decode": "one sequence of ids of the vocabulary; there several rows are joined, and unknown ids become "
    "a replacement character",
    "Tokenizer.encode": "text with a NUL is an error; there it is cut off at the NUL",
    "Tokenizer.to_token_id": "an unknown token is an error that says so; there -1, or the unknown token's id",
    "Tokenizer.update_options": "a value that is no flag is an error; there it counts as false",
    "TurnOptions.set_seed": "works for every model; there a turn with a seed is refused unless the graph reads block "
    "tables",
    "TurnOptions.set_stop_strings": "work for every model; there a turn with stop strings is refused unless the graph "
    "reads block tables",
    "TokenizerStream.decode": "an id outside the vocabulary is an error; there it is an empty text",
}

_STREAM = "mel spectrograms, voice detection and recurrent speech decoders are not part of a workbench for text"

ABSENT: dict[str, str] = {
    "StreamingProcessor()": f"always refused: {_STREAM}",
    "StreamingProcessor.flush": _STREAM,
    "StreamingProcessor.get_option": _STREAM,
    "StreamingProcessor.process": _STREAM,
    "StreamingProcessor.set_option": _STREAM,
}

ROWS: dict[str, Row] = _rows()


class Behaviour(NamedTuple):
    """A rule that shows in no single call, and the test that looks at both libraries."""

    about: str
    there: str
    here: str
    test: str
    members: str = ""
    """Those by which it is met, whose rows must not say "same"; "" for a rule of a whole engine or of the module."""


BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour(
        "a `temperature` or a penalty that float32 cannot count with",
        "is taken, and counts as 0 or infinite",
        "is refused: 1e-30 to 1e30 are allowed, and a temperature of 0",
        "tests/parity/test_og_generator.py",
        "GeneratorParams.set_search_options",
    ),
    Behaviour(
        "sampling with `top_k=0`, `top_p=0`",
        "silently argmax",
        "the whole distribution; `with og.og_compat():` gives their rule",
        "tests/parity/test_og_generator.py",
        "GeneratorParams.set_search_options Generator.generate_next_token",
    ),
    Behaviour(
        "`top_k=0` with `top_p < 1`",
        "keeps more than the nucleus",
        "the nucleus",
        "tests/parity/test_og_generator.py",
        "GeneratorParams.set_search_options Generator.generate_next_token",
    ),
    Behaviour(
        "appending after a generated token",
        "that token is left out of the cache",
        "it is read; the logits are a fresh generator's",
        "tests/parity/test_og_generator.py",
        "Generator.append_tokens",
    ),
    Behaviour(
        "a step right after `rewind_to`",
        "two tokens: the one that was cut off, and a new one",
        "one, chosen anew; `with og.og_compat():` gives their rule",
        "tests/parity/test_og_generator.py",
        "Generator.generate_next_token",
    ),
    Behaviour(
        "a prompt padded on the left",
        "the padding is read as text",
        "it is masked; the row is that row alone",
        "tests/parity/test_og_search.py",
        "Generator.append_tokens",
    ),
    Behaviour(
        "a grammar after `rewind_to(n)`",
        "begins anew",
        "is where it was after n tokens",
        "tests/parity/test_og_guidance.py",
        "Generator.rewind_to",
    ),
    Behaviour(
        "counters of speculation under a grammar",
        "a round has no bonus, and a greedy one no correction but at its first place",
        "rounds as without a grammar: the same text in fewer runs of the model",
        "tests/parity/test_og_speculative.py",
        "Generator.get_speculative_stats",
    ),
    Behaviour(
        "a grammar and beams",
        "fails at the grammar's end",
        "each beam follows it",
        "tests/parity/test_og_guidance.py",
        "Generator.generate_next_token",
    ),
    Behaviour(
        "an adapter for a graph among several (a stage, a decoder behind an embedding)",
        "is silently ignored",
        "changes that graph",
        "tests/parity/test_og_graphs_of_stages.py",
        "Generator.set_active_adapter",
    ),
    Behaviour(
        "an Engine on a CPU",
        "static batches of 4, unless the graph reads block tables; stop strings, seeds and draft tokens are refused",
        "continuous batches, paged cache, prefix reuse; all of them work",
        "tests/parity/test_og_engine.py",
        "Engine.get_capabilities Request.set_draft_tokens TurnOptions.set_seed TurnOptions.set_stop_strings",
    ),
    Behaviour(
        "an Engine on a graph that computes the logits of the last position only, as the default folder's does",
        "every request ends with ENGINE_EXECUTION_FAILURE; its Generators run such a folder, and its Engine one that "
        "was built with `--extra_options prune_lm_head=false`",
        "runs it",
        "tests/parity/test_og_engine.py",
    ),
    Behaviour(
        "a graph that reads block tables (`block_table`)",
        "runs on a CPU when it is made of plain operators; `PagedAttention` has no CPU kernel",
        "the same; event for event as there. `PagedAttention` is refused when the model is loaded",
        "tests/parity/test_og_paged_engine.py",
    ),
    Behaviour(
        "such a graph that also keeps states of one size",
        "keeps states for the ends of prompts, so that what begins like one is not read again",
        "keeps states for the end of every run that is the end of a block, inside of answers too",
        "tests/parity/test_og_paged_engine.py",
    ),
    Behaviour(
        "`Engine.run` after a piece of a prompt",
        "comes back with no events",
        "goes on until there is one",
        "tests/parity/test_og_paged_engine.py",
        "Engine.run",
    ),
    Behaviour(
        "equal prompts that wait together",
        "each is read",
        "the first is read, the others take it over: their first events come a step later",
        "tests/parity/test_og_paged_engine.py",
    ),
    Behaviour(
        "an idle conversation while others wait for its place",
        "keeps it until it is closed; who waits gets CAPACITY_BLOCKED events",
        "gives it up, and reads again when it goes on",
        "tests/parity/test_og_paged_engine.py",
    ),
    Behaviour(
        "draft tokens with a repetition penalty, or before `min_generated_tokens`",
        "are refused",
        "are verified",
        "tests/parity/test_og_paged_engine.py",
        "Request.set_draft_tokens",
    ),
    Behaviour(
        "a stop string right after half a character",
        "is not seen",
        "ends the turn",
        "tests/parity/test_og_paged_engine.py",
        "TurnOptions.set_stop_strings",
    ),
    Behaviour(
        "threads",
        "an Engine belongs to the thread that made it; others get an error",
        "any thread may call; calls take turns",
        "tests/parity/test_surface.py",
    ),
    Behaviour(
        "a request whose engine nobody holds any more",
        "is closed",
        "keeps its engine alive; closing either ends both",
        "tests/parity/test_surface.py",
    ),
    Behaviour(
        "errors",
        "RuntimeError, TypeError, ValueError, IndexError of pybind11",
        "classes of their own that are also those, so `except` clauses catch them; the words say what is allowed",
        "tests/parity/test_surface.py",
    ),
    Behaviour(
        "enums",
        "print as `FinishReason.EOS`; unequal to numbers; every one is true",
        "print as there; equal to their numbers; NONE is false",
        "tests/parity/test_surface.py",
    ),
    Behaviour(
        "devices and telemetry",
        "providers of the build; events are sent by default",
        "the CPU; nothing is ever sent",
        "tests/parity/test_surface.py",
    ),
)
