"""Configurations of well-known transformers, so that a name needs no download: sizes only, as their papers state them."""

from __future__ import annotations

from typing import Any

_BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
_OPT = {"vocab_size": 50272, "max_position_embeddings": 2048}


def _gpt2(width: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    return "gpt2", {"n_embd": width, "n_layer": layers, "n_head": heads}


def _opt(width: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "ffn_dim": 4 * width}
    return "opt", {**_OPT, **sizes, "word_embed_proj_dim": width}


def _t5(width: int, inner: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    sizes = {"d_model": width, "d_ff": inner, "num_layers": layers, "num_heads": heads, "d_kv": 64}
    return "t5", {**sizes, "decoder_start_token_id": 0}


def _vit(width: int, layers: int, heads: int, patch: int) -> tuple[str, dict[str, Any]]:
    return "vit", {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
                   "intermediate_size": 4 * width, "patch_size": patch}


KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base-uncased": ("bert", {}),
    "bert-base-cased": ("bert", {"vocab_size": 28996}),
    "bert-large-uncased": ("bert", _BERT_LARGE),
    "roberta-base": ("roberta", _ROBERTA),
    "roberta-large": ("roberta", {**_ROBERTA, **_BERT_LARGE}),
    "distilbert-base-uncased": ("distilbert", {}),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "opt-125m": _opt(768, 12, 12),
    "opt-1.3b": _opt(2048, 24, 32),
    "t5-small": _t5(512, 2048, 6, 8),
    "t5-base": _t5(768, 3072, 12, 12),
    "vit-base-patch16-224": _vit(768, 12, 12, 16),
    "vit-large-patch16-224": _vit(1024, 24, 16, 16),
}
"""Name -> (model type, differences from that type's default configuration)."""

CAUSAL = {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "phi",
          "phi3", "bloom", "falcon", "mamba", "stablelm", "olmo"}
"""Model types trained to predict the next token; other text models are trained on masked tokens."""
