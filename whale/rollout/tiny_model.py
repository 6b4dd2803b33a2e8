"""A tiny random model for tests: real tokens and real gradients in milliseconds, without a download."""

import os
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TINY_CORPUS = (
    "Which country is the capital of? The answer is the one that the passage names. "
    "<answer>Paris</answer> <search>capital of France</search> What is 12 + 34? It is 46. "
    "You are a helpful assistant. Answer the question with one word, as in the examples. "
)


def write_tiny_model(folder: str | os.PathLike[str], seed: int = 0, head_dim: int = 16) -> Path:
    """Write a randomly initialised Llama (2 layers, hidden 64, vocabulary below 1,024) with its tokenizer.

    The same seed gives the same weights. Byte-level BPE with a ChatML template, tied embeddings, context
    1,024, end token `<|im_end|>` (id 2). It knows nothing, and generates in milliseconds. vLLM's attention on a
    CPU needs a `head_dim` of 32 or more.
    """
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = Path(folder)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers' own
    tokenizer = _tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        initializer_range=0.2,  # wide enough that the next-token law is far from uniform
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers' own
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tiny_tokenizer() -> Any:
    """Train a byte-level BPE of about 300 entries on a few sentences."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TINY_CORPUS], trainer)
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers' own
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    fast.chat_template = CHATML
    return fast
