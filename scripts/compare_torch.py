#!/usr/bin/env python3
"""Trains one transformer on random tokens with PyTorch on the CPU and prints the milliseconds of each step, one a line.

The yardstick of scripts/compare_torch.sh; the product never runs it. What is fast in the installed version is used:
one product for q, k, v and one for gate and up, F.scaled_dot_product_attention and F.rms_norm where the version has
them, the fused AdamW where the CPU has it and the multi-tensor one elsewhere, gradients set to None, autocast with its
weight cache for bf16.
"""
import argparse
import inspect
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-5)
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight.type_as(x)


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.dim = a.heads, a.hidden // a.heads
        self.qkv = nn.Linear(a.hidden, 3 * a.hidden, bias=not a.llama)
        self.projection = nn.Linear(a.hidden, a.hidden, bias=not a.llama)
        self.llama = a.llama
        if a.llama:
            angle = torch.outer(torch.arange(a.seq), 10000.0 ** (-torch.arange(0, self.dim, 2) / self.dim))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)
        if not hasattr(F, "scaled_dot_product_attention"):
            self.register_buffer("mask", torch.full((a.seq, a.seq), -math.inf).triu(1), persistent=False)

    def rotate(self, x):
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        low, high = x.chunk(2, -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, self.dim).permute(2, 0, 3, 1, 4)  # [b, a, s, d] each
        if self.llama:
            q, k = self.rotate(q), self.rotate(k)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(self.dim)) + self.mask.to(q.dtype)
            y = scores.softmax(-1).to(v.dtype) @ v
        return self.projection(y.transpose(1, 2).reshape(b, s, h))


class Mlp(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.llama = a.llama
        self.expand = nn.Linear(a.hidden, (2 if a.llama else 1) * a.ffn, bias=not a.llama)
        self.contract = nn.Linear(a.ffn, a.hidden, bias=not a.llama)

    def forward(self, x):
        x = self.expand(x)
        if not self.llama:
            return self.contract(F.gelu(x, approximate="tanh"))
        gate, up = x.chunk(2, -1)
        return self.contract(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        norm = RmsNorm if a.llama else nn.LayerNorm
        self.norm1, self.attention, self.norm2, self.mlp = norm(a.hidden), Attention(a), norm(a.hidden), Mlp(a)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.words = nn.Embedding(a.vocab, a.hidden)
        self.positions = None if a.llama else nn.Embedding(a.seq, a.hidden)
        self.layers = nn.Sequential(*(Layer(a) for _ in range(a.layers)))
        self.norm = (RmsNorm if a.llama else nn.LayerNorm)(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        if not a.llama:
            self.head.weight = self.words.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, target):
        x = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        logits = self.head(self.norm(self.layers(x)))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.reshape(-1))


def make_optimizer(model):
    known = inspect.signature(torch.optim.AdamW).parameters
    for choice in ("fused", "foreach", None):
        if choice is not None and choice not in known:
            continue
        try:
            more = {choice: True} if choice else {}
            return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **more), choice or "plain"
        except RuntimeError:  # the fused one of an old version is for GPUs
            continue
    raise RuntimeError("torch.optim.AdamW can not be made")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--llama", action="store_true", help="RMSNorm, RoPE, SwiGLU, no biases, untied; else GPT-2")
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    a = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = Model(a)
    optimizer, kind = make_optimizer(model)
    run = torch.compile(model) if a.compile else model
    count = sum(p.numel() for p in model.parameters())
    print(f"# torch {torch.__version__}, {a.threads} threads, {count} parameters, AdamW {kind}", file=sys.stderr)
    for _ in range(a.steps):
        data = torch.randint(a.vocab, (a.batch, a.seq + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        print(f"{(time.perf_counter() - begin) * 1e3:.3f} {value:.4f}", flush=True)


main()
