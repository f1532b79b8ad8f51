"""Write a miniature as a GGUF file, for llama.cpp: python -m tests.miniature_gguf [MODEL] FILE. Every token is defined
by the user, so that llama.cpp takes the longest first, as the model's own tokenizer. The chat template also says where
an earlier thought goes, and has a switch: llama.cpp finds the marks of thoughts by trying a template."""

from __future__ import annotations

import sys
from pathlib import Path

from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from safetensors.numpy import load_file
from transformers import AutoConfig

from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_tokenizer

_ASSISTANT = "{{ '<|assistant|>' + message['content'] + '<eos>' }}"
_EARLIER = "{{ '<think>' + message['reasoning_content'] + '</think>' }}"
_THOUGHTFUL = (
    "{{ '<|assistant|>' }}{% if message['reasoning_content'] %}" + _EARLIER + "{% endif %}"
    "{{ message['content'] + '<eos>' }}"
)
_OPENED = "{{ '<|assistant|><think>' }}"
_SWITCH = "{% if enable_thinking is defined and not enable_thinking %}{{ '</think>' }}{% endif %}"


def write(model: Path, file: Path) -> None:
    config, tokenizer = AutoConfig.from_pretrained(model), load_tokenizer(model)
    out = GGUFWriter(file, "llama")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_rope_dimension_count(config.head_dim)
    out.add_vocab_size(config.vocab_size)
    tokens = tokenizer.convert_ids_to_tokens(range(config.vocab_size))
    special = {*tokenizer.all_special_tokens}
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types([TokenType.CONTROL if each in special else TokenType.USER_DEFINED for each in tokens])
    out.add_bos_token_id(config.bos_token_id)
    out.add_eos_token_id(config.eos_token_id)
    out.add_unk_token_id(tokenizer.unk_token_id)
    out.add_add_bos_token(False)
    out.add_add_space_prefix(False)
    template = tokenizer.chat_template
    assert _ASSISTANT in template and _OPENED in template
    out.add_chat_template(template.replace(_ASSISTANT, _THOUGHTFUL).replace(_OPENED, _OPENED + _SWITCH))
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in load_file(model / "model.safetensors").items():
        if number := next((number for part, number in heads.items() if part in name), None):
            # The halves of each head's rotation side by side.
            tensor = tensor.reshape(number, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
        out.add_tensor(names.get_name(name, (".weight",)), tensor)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 2 else BASE, Path(sys.argv[-1]))
