"""Small calls of every member but the Engine's: what the rows of the table claim, tried on both libraries."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

from tools.compat_engine_calls import ENGINE
from tools.compat_stage import PROMPT, Calls, Stage, each, refused

MESSAGES = '[{"role": "user", "content": "Hi"}]'
NO_MEDIA_MODEL = "no model for images is at hand"
NO_HEAD = "tests/parity/test_og_mtp.py drives both on a model with such a head"
CRASHES = "it ends the process"


def _package(s: Stage) -> str:
    """A model package with one variant for the CPU; the type that its config names."""
    with TemporaryDirectory() as folder:
        variant = {"ep": "CPUExecutionProvider", "variant_directory": "here"}
        manifest = {"schema_version": "1.0", "components": {"model": {"variants": {"cpu": variant}}}}
        (Path(folder) / "manifest.json").write_text(json.dumps(manifest))
        (Path(folder) / "here").symlink_to(s.folder)
        return str(s.lib.Model(s.lib.Config.from_package_ep(folder, "cpu")).type)


def _overlaid(config: Any) -> int:
    config.overlay('{"search": {"top_k": 3}}')
    return int(config.search_options().top_k)


def _load_by_path(s: Stage) -> None:
    """An adapter's file, written and loaded by a pathlib.Path."""
    with TemporaryDirectory() as folder:
        values = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.float32), 1)
        written = onnxruntime.AdapterFormat()
        written.set_adapter_version(1)
        written.set_model_version(1)
        written.set_parameters({"a": values})
        written.export_adapter(f"{folder}/a.onnx_adapter")
        s.lib.Adapters(s.model).load(Path(folder) / "a.onnx_adapter", "x")


def _streamed(stream: Any, ids: Any) -> list[str]:
    return [stream.decode(token) for token in ids]


def _appended(s: Stage, tokens: object) -> list[int]:
    made = s.empty()
    made.append_tokens(tokens)
    return [int(token) for token in made.get_sequence(0)]


def _after_rewind(made: Any) -> int:
    made.rewind_to(4)
    made.generate_next_token()
    return int(made.token_count())


def _rewound(made: Any) -> list[int]:
    made.rewind_to(2)
    made.append_tokens([7])
    made.generate_next_token()
    return [int(token) for token in made.get_sequence(0)]


def _back_in_a_grammar(s: Stage) -> str:
    """What an answer to a grammar of one word comes to when its last token is taken back once."""
    params = s.params(max_length=24)
    params.set_guidance("regex", "abcdefgh")
    made = s.lib.Generator(s.model, params)
    made.append_tokens(PROMPT)
    for _ in range(3):
        made.generate_next_token()
    made.rewind_to(made.token_count() - 1)
    while not made.is_done():
        made.generate_next_token()
    return str(s.tokenizer.decode(made.get_sequence(0)[len(PROMPT) :]))


def _with_logits(made: Any) -> int:
    logits = np.zeros_like(made.get_logits())
    logits[..., 7] = 1
    made.set_logits(logits)
    made.generate_next_token()
    return int(made.get_next_tokens()[0])


def _terminated(made: Any) -> None:
    made.set_runtime_option("terminate_session", "1")
    made.generate_next_token()
    made.generate_next_token()


FUNCTIONS = {
    "disable_telemetry_events": Calls(same=lambda s: s.lib.disable_telemetry_events()),
    "enable_telemetry_events": Calls(same=lambda s: s.lib.enable_telemetry_events()),
    "get_current_gpu_device_id": Calls(here=lambda s: s.lib.get_current_gpu_device_id(), why_not_there=CRASHES),
    "set_current_gpu_device_id": Calls(here=lambda s: s.lib.set_current_gpu_device_id(0), why_not_there=CRASHES),
    "is_cuda_available": Calls(same=lambda s: s.lib.is_cuda_available()),
    "is_dml_available": Calls(same=lambda s: s.lib.is_dml_available()),
    "is_openvino_available": Calls(differs=lambda s: s.lib.is_openvino_available()),
    "is_qnn_available": Calls(differs=lambda s: s.lib.is_qnn_available()),
    "is_webgpu_available": Calls(differs=lambda s: s.lib.is_webgpu_available()),
    "register_execution_provider_library": Calls(
        same=lambda s: s.lib.register_execution_provider_library("x", str(s.folder / "nothing.so"))
    ),
    "unregister_execution_provider_library": Calls(same=lambda s: s.lib.unregister_execution_provider_library("x")),
    "set_log_callback": Calls(same=lambda s: s.logged(generate_next_token=True)),
    "set_log_options": Calls(
        same=lambda s: [s.logged(generate_next_token=False), refused(lambda: s.lib.set_log_options(zzz=True))]
    ),
}
HARDWARE = {
    "decoder_provider_options_hardware_device_id": 1,
    "decoder_provider_options_hardware_device_type": "gpu",
    "decoder_provider_options_hardware_vendor_id": 1,
}
CONFIG = {
    "Config()": Calls(
        same=lambda s: s.config() and refused(lambda: s.lib.Config("/no")), more=lambda s: s.lib.Config(s.folder) and 1
    ),
    "Config.add_model_data": Calls(
        same=lambda s: [s.config().add_model_data("x", b"y"), refused(lambda: s.config().add_model_data("x", b""))]
    ),
    "Config.remove_model_data": Calls(same=lambda s: s.config().remove_model_data("x")),
    "Config.append_provider": Calls(same=lambda s: s.config().append_provider("slide rule")),
    "Config.clear_providers": Calls(same=lambda s: s.config().clear_providers()),
    "Config.set_provider_option": Calls(same=lambda s: s.config().set_provider_option("cuda", "a", "1")),
    "Config.from_package_ep": Calls(
        same=lambda s: s.lib.Config.from_package_ep(str(s.folder), ""), more=lambda s: _package(s)
    ),
    "Config.overlay": Calls(
        same=lambda s: [
            s.config().overlay('{"search": {"top_k": 3}}'),
            refused(lambda: s.config().overlay('{"search": {"z": 1}}')),
        ],
        more=lambda s: _overlaid(s.config()),
    ),
    **each(
        "Config",
        [f"clear_{name}" for name in HARDWARE],
        lambda n: Calls(same=lambda s: getattr(s.config(), n)("cuda")),
    ),
    **each(
        "Config",
        [f"set_{name}" for name in HARDWARE],
        lambda n: Calls(same=lambda s: getattr(s.config(), n)("cuda", HARDWARE[n.removeprefix("set_")])),
    ),
}
MODEL = {
    "Model()": Calls(same=lambda s: refused(lambda: s.lib.Model("/no")), more=lambda s: s.lib.Model(s.folder).type),
    "Model.type": Calls(same=lambda s: s.model.type),
    "Model.device_type": Calls(same=lambda s: s.model.device_type),
    "Model.create_multimodal_processor": Calls(same=lambda s: s.model.create_multimodal_processor()),
    "Model.create_streaming_processor": Calls(same=lambda s: s.model.create_streaming_processor()),
    "Adapters()": Calls(same=lambda s: s.lib.Adapters(s.model) and refused(lambda: s.lib.Adapters(5))),
    "Adapters.load": Calls(same=lambda s: s.lib.Adapters(s.model).load("/no", "x"), more=lambda s: _load_by_path(s)),
    "Adapters.unload": Calls(same=lambda s: s.lib.Adapters(s.model).unload("x")),
    "Images.open": Calls(
        same=lambda s: [
            refused(lambda: s.lib.Images.open()),
            refused(lambda: s.lib.Images.open("/no.png")),
            refused(lambda: s.lib.Images.open(5)),
            s.lib.Images.open(str(s.folder / "genai_config.json")) is None,
        ],
        more=lambda s: s.lib.Images.open(s.folder / "genai_config.json") is None,
    ),
    "Images.open_bytes": Calls(
        same=lambda s: [
            refused(lambda: s.lib.Images.open_bytes()),
            refused(lambda: s.lib.Images.open_bytes("x")),
            s.lib.Images.open_bytes(b"x") is None,
            s.lib.Images.open_bytes(b"") is None,
            refused(lambda: s.lib.Images()),
        ]
    ),
    "Audios.open": Calls(
        same=lambda s: [
            refused(lambda: s.lib.Audios.open()),
            refused(lambda: s.lib.Audios.open("/no.wav")),
            refused(lambda: s.lib.Audios.open(5)),
            s.lib.Audios.open(str(s.folder / "genai_config.json")) is None,
        ]
    ),
    "Audios.open_bytes": Calls(
        same=lambda s: [
            refused(lambda: s.lib.Audios.open_bytes()),
            refused(lambda: s.lib.Audios.open_bytes(b"")),
            s.lib.Audios.open_bytes(b"x") is None,
        ]
    ),
    "MultiModalProcessor.__call__": Calls(
        absent=lambda s: s.lib.MultiModalProcessor(s.tokenizer)("Hi", images=s.lib.Images.open_bytes(b"x")),
        here=lambda s: s.lib.MultiModalProcessor(s.tokenizer)("Hi")["input_ids"].as_numpy(),
        why_not_there=NO_MEDIA_MODEL,
    ),
    "MultiModalProcessor.create_stream": Calls(
        here=lambda s: s.lib.MultiModalProcessor(s.tokenizer).create_stream().decode(72), why_not_there=NO_MEDIA_MODEL
    ),
    "MultiModalProcessor.decode": Calls(
        here=lambda s: s.lib.MultiModalProcessor(s.tokenizer).decode([72]), why_not_there=NO_MEDIA_MODEL
    ),
    "StreamingProcessor()": Calls(absent=lambda s: s.lib.StreamingProcessor(s.model)),
    "StreamingProcessor.flush": Calls(absent=lambda s: s.lib.StreamingProcessor.flush(None)),
    "StreamingProcessor.get_option": Calls(absent=lambda s: s.lib.StreamingProcessor.get_option(None, "use_vad")),
    "StreamingProcessor.process": Calls(absent=lambda s: s.lib.StreamingProcessor.process(None, [0.0])),
    "StreamingProcessor.set_option": Calls(absent=lambda s: s.lib.StreamingProcessor.set_option(None, "use_vad", "1")),
    "MtpGenerator()": Calls(
        same=lambda s: s.lib.MtpGenerator(s.model, s.model, s.params()),
    ),
    **each(
        "MtpGenerator",
        ("append_tokens", "generate_next_token", "get_sequence", "get_stats", "is_done", "reset"),
        lambda n: Calls(here=lambda s: callable(getattr(s.lib.MtpGenerator, n)), why_not_there=NO_HEAD),
    ),
}
TENSORS = {
    "Tensor()": Calls(same=lambda s: [s.lib.Tensor(np.zeros(3, np.int32)).shape(), refused(lambda: s.lib.Tensor([1]))]),
    "Tensor.as_numpy": Calls(same=lambda s: s.lib.Tensor(np.array([[1.5]], np.float32)).as_numpy()),
    "Tensor.shape": Calls(same=lambda s: s.lib.Tensor(np.zeros((2, 0, 3), np.int64)).shape()),
    "Tensor.data": Calls(differs=lambda s: bytes(s.lib.Tensor(np.array([1], np.int32)).data())),
    "Tensor.type": Calls(differs=lambda s: str(s.lib.Tensor(np.array([1], np.int32)).type())),
    "NamedTensors()": Calls(same=lambda s: len(s.lib.NamedTensors())),
    "NamedTensors.__len__": Calls(same=lambda s: len(s.named())),
    "NamedTensors.keys": Calls(same=lambda s: s.named().keys()),
    "NamedTensors.__getitem__": Calls(same=lambda s: [s.named()["a"].as_numpy(), refused(lambda: s.named()["b"])]),
    "NamedTensors.__setitem__": Calls(same=lambda s: s.named().__setitem__("b", s.lib.Tensor(np.zeros(1, np.float32)))),
    "NamedTensors.__delitem__": Calls(same=lambda s: [s.named().__delitem__("a"), s.named().__delitem__("b")]),
    "NamedTensors.__contains__": Calls(
        same=lambda s: ["a" in s.named(), "b" in s.named()], more=lambda s: 5 in s.named()
    ),
}
TEXT = {
    "Tokenizer()": Calls(
        same=lambda s: [s.lib.Tokenizer(source).bos_token_id for source in (s.model, s.config(), str(s.folder))],
        more=lambda s: s.lib.Tokenizer(s.folder).bos_token_id,
    ),
    "Tokenizer.encode": Calls(
        same=lambda s: s.tokenizer.encode("Hello, world"), differs=lambda s: s.tokenizer.encode("a\0b")
    ),
    "Tokenizer.encode_batch": Calls(
        same=lambda s: [
            s.tokenizer.encode_batch(["Hello", "a"]).as_numpy(),
            refused(lambda: s.tokenizer.encode_batch([])),
        ]
    ),
    "Tokenizer.decode": Calls(
        same=lambda s: [
            s.tokenizer.decode(s.tokenizer.encode("Hello né")),
            s.tokenizer.decode(72),
            s.tokenizer.decode(s.tokenizer.encode("Hello")[None]),
        ],
        differs=lambda s: s.tokenizer.decode([10**6]),
    ),
    "Tokenizer.decode_batch": Calls(
        same=lambda s: s.tokenizer.decode_batch(s.tokenizer.encode_batch(["Hello", "the world"])),
        more=lambda s: s.tokenizer.decode_batch([[70, 71], [72]]),
    ),
    "Tokenizer.apply_chat_template": Calls(
        same=lambda s: [
            s.tokenizer.apply_chat_template(MESSAGES),
            s.tokenizer.apply_chat_template(messages=MESSAGES, template_str="", tools="", add_generation_prompt=False),
            s.tokenizer.apply_chat_template(MESSAGES, template_str="{{ messages[0].content }}!"),
            refused(lambda: s.tokenizer.apply_chat_template("no JSON")),
            refused(lambda: s.tokenizer.apply_chat_template(MESSAGES, "by position")),
        ],
        more=lambda s: s.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]),
    ),
    "Tokenizer.create_stream": Calls(same=lambda s: _streamed(s.tokenizer.create_stream(), s.tokenizer.encode("né a"))),
    "Tokenizer.to_token_id": Calls(
        same=lambda s: s.tokenizer.to_token_id("<|im_end|>"), differs=lambda s: s.tokenizer.to_token_id("no such token")
    ),
    "Tokenizer.update_options": Calls(
        same=lambda s: [
            s.lib.Tokenizer(s.model).update_options(skip_special_tokens="true"),
            refused(lambda: s.tokenizer.update_options(zzz="1")),
        ],
        differs=lambda s: s.lib.Tokenizer(s.model).update_options(skip_special_tokens="maybe"),
    ),
    **each(
        "Tokenizer",
        [f"{mark}_token_id" for mark in ("bor", "bos", "bot", "eor", "eot", "pad")] + ["eos_token_ids"],
        lambda n: Calls(same=lambda s: getattr(s.tokenizer, n)),
    ),
    "TokenizerStream.decode": Calls(
        same=lambda s: s.tokenizer.create_stream().decode(np.int32(72)),
        differs=lambda s: s.tokenizer.create_stream().decode(10**6),
    ),
}
GENERATOR = {
    "GeneratorParams()": Calls(
        same=lambda s: s.lib.GeneratorParams(s.model) and refused(lambda: s.lib.GeneratorParams(5))
    ),
    "GeneratorParams.set_search_options": Calls(
        same=lambda s: [
            s.params(top_k=3, top_p=0.5, do_sample=True) is None,
            refused(lambda: s.params(zzz=1)),
            refused(lambda: s.params(top_k="a")),
            refused(lambda: s.lib.GeneratorParams(s.model).set_search_options({"top_k": 1})),
        ],
        more=lambda s: s.params(min_p=0.1) and s.params(top_k=np.int64(3)) is None,
    ),
    "GeneratorParams.get_search_options": Calls(same=lambda s: s.params(top_p=0.7).get_search_options()),
    "GeneratorParams.set_speculative_options": Calls(
        same=lambda s: [
            s.params().set_speculative_options(ngram_size=2),
            refused(lambda: s.params().set_speculative_options(z=1)),
        ]
    ),
    "GeneratorParams.get_speculative_options": Calls(same=lambda s: s.params().get_speculative_options()),
    "GeneratorParams.set_guidance": Calls(
        same=lambda s: [
            s.params().set_guidance("regex", "[ab]+"),
            s.params().set_guidance(type="regex", data="[ab]+", enable_ff_tokens=True),
            refused(lambda: s.params().set_guidance(5, "x")),
        ]
    ),
    "Generator()": Calls(
        same=lambda s: s.empty() and refused(lambda: s.lib.Generator(s.params(), s.model)),
        more=lambda s: s.lib.Generator(model=s.model, params=s.params()).token_count(),
    ),
    "Generator.append_tokens": Calls(
        same=lambda s: [
            [
                _appended(s, tokens)
                for tokens in (PROMPT, [PROMPT], np.array(PROMPT), s.lib.Tensor(np.array([PROMPT], np.int32)))
            ],
            refused(lambda: s.empty().append_tokens([])),
            refused(lambda: s.empty().append_tokens([5] * 99)),
            refused(lambda: s.empty().append_tokens("text")),
        ],
        differs=lambda s: s.empty().append_tokens([3.5]),
    ),
    "Generator.generate_next_token": Calls(
        same=lambda s: [s.generator(5).get_sequence(0), refused(lambda: s.empty().generate_next_token())],
        differs=lambda s: _after_rewind(s.generator(4)),
    ),
    "Generator.get_input": Calls(
        same=lambda s: [s.generator().get_input("input_ids"), refused(lambda: s.generator().get_input("x"))]
    ),
    "Generator.get_output": Calls(
        same=lambda s: [s.generator(2).get_output("logits").shape, refused(lambda: s.generator().get_output("x"))],
        here=lambda s: s.generator().get_output("logits"),
        why_not_there="tests/models/test_last_positions.py has a graph that gives every position's logits",
    ),
    "Generator.get_logits": Calls(same=lambda s: s.generator().get_logits(), differs=lambda s: s.empty().get_logits()),
    "Generator.set_logits": Calls(
        same=lambda s: [
            _with_logits(s.generator()),
            refused(lambda: s.generator().set_logits(np.zeros(3, np.float32))),
        ],
        differs=lambda s: s.empty().set_logits(np.zeros(3, np.float32)),
    ),
    "Generator.get_next_tokens": Calls(same=lambda s: [s.generator(1).get_next_tokens(), s.empty().get_next_tokens()]),
    "Generator.get_sequence": Calls(
        same=lambda s: s.generator(2).get_sequence(0), differs=lambda s: s.generator().get_sequence(1)
    ),
    "Generator.get_speculative_stats": Calls(
        same=lambda s: sorted(s.generator(1).get_speculative_stats()),
        here=lambda s: s.generator(1).get_speculative_stats(),
        why_not_there="tests/parity/test_og_speculative.py counts on a model with a draft",
    ),
    "Generator.is_done": Calls(same=lambda s: [s.empty().is_done(), s.generator().is_done(), s.generator(9).is_done()]),
    "Generator.rewind_to": Calls(
        same=lambda s: [
            _rewound(s.generator(3)),
            refused(lambda: s.generator().rewind_to(-1)),
            refused(lambda: s.generator().rewind_to(99)),
            refused(lambda: s.generator().rewind_to("a")),
        ],
        differs=_back_in_a_grammar,
    ),
    "Generator.set_active_adapter": Calls(
        same=lambda s: s.generator().set_active_adapter(s.lib.Adapters(s.model), "x"),
        here=lambda s: callable(s.generator().set_active_adapter),
        why_not_there="tests/parity/test_og_graphs_of_stages.py has a model of several graphs",
    ),
    "Generator.set_hidden_states": Calls(
        same=lambda s: s.generator().set_hidden_states(np.zeros((1, 1, 8), np.float32))
    ),
    "Generator.set_inputs": Calls(
        same=lambda s: s.empty().set_inputs({}), more=lambda s: s.empty().set_inputs(s.named())
    ),
    "Generator.set_model_input": Calls(
        same=lambda s: s.generator().set_model_input("unknown", np.zeros(2, np.float32))
    ),
    "Generator.set_runtime_option": Calls(
        same=lambda s: [
            s.generator().set_runtime_option("terminate_session", "0"),
            refused(lambda: s.generator().set_runtime_option("terminate_session", "2")),
            refused(lambda: _terminated(s.generator())),
        ],
        differs=lambda s: s.generator().set_runtime_option("enable_profiling", str(s.folder / "profile")),
    ),
    "Generator.snapshot_state": Calls(same=lambda s: s.generator().snapshot_state()),
    "Generator.token_count": Calls(same=lambda s: [s.empty().token_count(), s.generator(2).token_count()]),
}

CALLS: dict[str, Calls] = {**FUNCTIONS, **CONFIG, **MODEL, **TENSORS, **TEXT, **GENERATOR, **ENGINE}
