"""A small sequential recommender: a causal transformer over item embeddings, as in SASRec."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each behind a norm and a shortcut."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        projected = self.queries_keys_values(self.attention_norm(x))
        projected = projected.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*projected, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(x)


class SequenceRecommender(nn.Module):
    """Hidden states from which the next item is scored by its embedding."""

    def __init__(self, items, length, *, width=48, heads=2, layers=2, dropout=0.1):
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.items.weight, std=0.02)

    def forward(self, sequences):
        """Hidden states (batch, length, width) of item sequences (batch, length)."""
        positions = torch.arange(sequences.shape[1], device=sequences.device)
        hidden = self.dropout(self.items(sequences) + self.positions(positions))
        return self.norm(self.blocks(hidden))


def next_item_loss(model, hidden, positives, negatives):
    """Binary cross-entropy of the next item against one sampled negative per position."""
    positive = (hidden * model.items(positives)).sum(dim=-1)
    negative = (hidden * model.items(negatives)).sum(dim=-1)
    losses = F.softplus(-positive) + F.softplus(negative)
    real = positives != 0
    return (losses * real).sum() / real.sum()


def contrastive_loss(first, second, temperature=0.2):
    """InfoNCE between two views (batch, width) of the same users."""
    similarity = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / temperature
    return F.cross_entropy(similarity, torch.arange(len(first), device=first.device))


def training_loss(model, batch, contrast=0.1):
    stacked = torch.cat([batch["inputs"], batch["view_a"], batch["view_b"]])
    hidden, view_a, view_b = model(stacked).chunk(3)
    loss = next_item_loss(model, hidden, batch["positives"], batch["negatives"])
    return loss + contrast * contrastive_loss(view_a[:, -1], view_b[:, -1])
