"""Text to token ids and back: the tokenizer of a model folder, its stream and its chat template.

    library        calls into `tokenizers`, guarded
    files          tokenizer.json and its companions, read
    vocabulary     written and displayed forms of single tokens; ids checked
    detokenizer    decoders of the `tokenizers` library, token by token
    stream         TokenizerStream: text while an answer grows
    sandbox        Jinja, safe and counted
    chat_template  conversations as prompts
    tokenizer      Tokenizer: the door to all of it

Nothing here records or measures; whoever calls does.
"""

from genai_lab.tokenizer.chat_template import ChatTemplate
from genai_lab.tokenizer.stream import TokenizerStream
from genai_lab.tokenizer.tokenizer import Tokenizer
from genai_lab.tokenizer.vocabulary import Vocabulary

__all__ = ["ChatTemplate", "Tokenizer", "TokenizerStream", "Vocabulary"]
