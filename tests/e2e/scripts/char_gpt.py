"""A character-level GPT: batches cut from a memory-mapped file, four micro-batches per update."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

EXPECTED_STEPS = 30

BLOCK_SIZE = 32
BATCH_SIZE = 8
VOCAB_SIZE = 64
N_EMBD = 48
N_HEAD = 4
N_LAYER = 2
GRADIENT_ACCUMULATION_STEPS = 4
EVAL_INTERVAL = 10
EVAL_ITERS = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(N_EMBD)
        self.attn = nn.Linear(N_EMBD, 3 * N_EMBD)
        self.proj = nn.Linear(N_EMBD, N_EMBD)
        self.ln_2 = nn.LayerNorm(N_EMBD)
        self.mlp = nn.Sequential(
            nn.Linear(N_EMBD, 4 * N_EMBD), nn.GELU(), nn.Linear(4 * N_EMBD, N_EMBD)
        )

    def forward(self, x):
        b, t, c = x.shape
        heads = (
            y.view(b, t, N_HEAD, -1).transpose(1, 2) for y in self.attn(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB_SIZE, N_EMBD)
        self.wpe = nn.Embedding(BLOCK_SIZE, N_EMBD)
        self.blocks = nn.Sequential(*[Block() for _ in range(N_LAYER)])
        self.ln_f = nn.LayerNorm(N_EMBD)
        self.lm_head = nn.Linear(N_EMBD, VOCAB_SIZE, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def prepare(folder):
    """Writes a Markov-like character stream as uint16, split into train and val."""
    rng = np.random.default_rng(1337)
    text = np.cumsum(rng.integers(-2, 3, size=50_000)) % VOCAB_SIZE
    for split, part in (("train", text[:45_000]), ("val", text[45_000:])):
        part.astype(np.uint16).tofile(folder / f"{split}.bin")


def get_batch(folder, split):
    data = np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - BLOCK_SIZE, (BATCH_SIZE,)).tolist()
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK_SIZE].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + BLOCK_SIZE].astype(np.int64)) for i in ix]
    )
    return x, y


@torch.no_grad()
def estimate_loss(model, folder):
    model.eval()
    losses = {}
    for split in ("train", "val"):
        batches = (get_batch(folder, split) for _ in range(EVAL_ITERS))
        losses[split] = sum(model(x, y)[1].item() for x, y in batches) / EVAL_ITERS
    model.train()
    return losses


def train(folder, steps):
    prepare(folder)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    x, y = get_batch(folder, "train")
    for iter_num in range(steps):
        if iter_num % EVAL_INTERVAL == 0:
            losses = estimate_loss(model, folder)
            print(f"step {iter_num}: train loss {losses['train']:.4f}, val {losses['val']:.4f}")
        for _ in range(GRADIENT_ACCUMULATION_STEPS):
            _, loss = model(x, y)
            x, y = get_batch(folder, "train")
            (loss / GRADIENT_ACCUMULATION_STEPS).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.save({"model": model.state_dict(), "iter_num": steps}, folder / "ckpt.pt")


def main():
    parser = argparse.ArgumentParser(description="Character-level GPT.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    parser.add_argument("--data", type=Path, help="folder for the corpus; default: a temp folder")
    args = parser.parse_args()

    torch.manual_seed(1337)
    with tempfile.TemporaryDirectory() as folder:
        train(args.data or Path(folder), args.steps)


if __name__ == "__main__":
    main()
