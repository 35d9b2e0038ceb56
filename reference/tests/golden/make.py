#!/usr/bin/env python3
"""Makes the golden files in this folder: the DFlash and Domino objectives in 64-bit numpy, differentiated by `autograd`.

Independent of the crate: written from the description of the model in the crate's README, with dense masks and no hand-derived
gradient. Run once and commit the output; `pip install numpy autograd safetensors`.
"""
import json
import pathlib

import autograd.numpy as np
import numpy
from autograd import grad
from safetensors.numpy import save_file

BASE = dict(
    algorithm="dflash", batch=2, seq_len=20, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=4,
    intermediate_size=24, num_hidden_layers=2, num_context_features=2, block_size=4, num_anchors=4, vocab_size=29,
    mask_token_id=28, loss_decay_gamma=5.0, rms_norm_eps=1e-6, rope_theta=10000.0,
)
# Each variant: changes to BASE, anchors and keep per sequence, which positions are supervised.
ANCHORS = [[1, 5, 9, 16], [2, 3, 11, 15]], [[1, 1, 1, 1], [1, 1, 1, 1]]
DOMINO = dict(algorithm="domino", emb_dim=6, gru_hidden_dim=10)
VARIANTS = {
    # Anchors anywhere, all blocks kept, everything supervised.
    "dense": ({}, [[1, 5, 9, 16], [2, 3, 11, 15]], [[1, 1, 1, 1]] * 2, lambda s, j: True),
    # Fewer supervised positions than anchors, a sequence with none at all, anchors at 0 and at the end of the sequence.
    "sparse": ({}, [[0, 7, 18, 0], [0, 0, 0, 0]], [[1, 1, 1, 0], [0, 0, 0, 0]], lambda s, j: s == 0 and j in (7, 8, 9, 18, 19)),
    # No decay, one layer, one key head, odd sizes.
    "plain": (
        dict(loss_decay_gamma=None, num_hidden_layers=1, num_key_value_heads=1, head_dim=6, intermediate_size=7, block_size=3,
             num_anchors=2, num_context_features=1),
        [[4, 6], [17, 0]], [[1, 1], [1, 0]], lambda s, j: j % 3 != 1,
    ),
    # A sliding layer below a full one; the window is shorter than most contexts, and with slot 3 of an early anchor longer.
    "sliding": (dict(layer_types=["sliding_attention", "full_attention"], sliding_window=3), *ANCHORS, lambda s, j: j != 6),
    "dpace": (dict(loss_type="dpace", dpace_alpha=0.5), *ANCHORS, lambda s, j: (s + j) % 5 != 2),
    "dpace_cumulative": (
        dict(loss_type="dpace-cumulative-confidence-only", dpace_alpha=0.3), *ANCHORS, lambda s, j: (s + j) % 5 != 2),
    "dpace_continuation": (
        dict(loss_type="dpace-continuation-value-only", dpace_alpha=0.7), *ANCHORS, lambda s, j: (s + j) % 5 != 2),
    # Slot k predicts the token at anchor + k; all scored slots are corrected.
    "domino_unshifted": (DOMINO | dict(shift_label=False, pure_draft_prefix_len=0, lambda_base=0.35), *ANCHORS, lambda s, j: j % 4 != 2),
    # As "sparse", with shifted labels and an uncorrected first slot, no decay.
    "domino_sparse": (
        DOMINO | dict(shift_label=True, pure_draft_prefix_len=1, lambda_base=0.6, loss_decay_gamma=None),
        [[0, 7, 18, 0], [0, 0, 0, 0]], [[1, 1, 1, 0], [0, 0, 0, 0]], lambda s, j: s == 0 and j in (7, 8, 9, 18, 19),
    ),
    # Unshifted labels with an uncorrected slot, both layers sliding, the base loss switched off.
    "domino_sliding": (
        DOMINO | dict(shift_label=False, pure_draft_prefix_len=1, lambda_base=0.0, sliding_window=5,
                      layer_types=["sliding_attention"] * 2), *ANCHORS, lambda s, j: True),
}


def rms(x, w, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def rotate(x, positions, theta):
    """x: [..., rows, heads, D]; positions: [..., rows]."""
    half = x.shape[-1] // 2
    angle = positions[..., None, None] * theta ** (-numpy.arange(half) / half)
    cos, sin = numpy.cos(angle), numpy.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q, k, v, visible):
    """q: [Q, heads, D], k and v: [K, kv_heads, D], visible: [Q, K]; a row that sees nothing yields zeros."""
    group = q.shape[1] // k.shape[1]
    heads = []
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // group].T / numpy.sqrt(q.shape[-1])
        scores = np.where(visible, scores, -1e30)
        e = np.exp(scores - np.max(scores, axis=1, keepdims=True)) * visible
        heads.append(e / (np.sum(e, axis=1, keepdims=True) + (~visible.any(1, keepdims=True))) @ v[:, h // group])
    return np.concatenate(heads, axis=-1)


def gru(x, w_ih, w_hh):
    """x: [blocks, steps, H]; the states after every step, from a zero state, no biases, gates in the order r, z, n."""
    h, states = numpy.zeros((x.shape[0], w_hh.shape[1])), []
    sigmoid = lambda a: 1 / (1 + np.exp(-a))
    for step in range(x.shape[1]):
        i, r = np.split(x[:, step] @ w_ih.T, 3, axis=1), np.split(h @ w_hh.T, 3, axis=1)
        reset, update = sigmoid(i[0] + r[0]), sigmoid(i[1] + r[1])
        h = (1 - update) * np.tanh(i[2] + reset * r[2]) + update * h
        states.append(h)
    return np.stack(states, axis=1)


def correction(w, c, hidden, ids, anchors, label, embed):
    """What Domino adds to the logits, [N, B, V]; zero in slots before the suffix."""
    B, N = c["block_size"], c["num_anchors"]
    if c["shift_label"]:
        previous = numpy.minimum(anchors[:, None] + numpy.arange(B), c["seq_len"] - 1)
        start, tokens = c["pure_draft_prefix_len"], ids[previous]
        states = gru(embed[tokens], w["prefix_gru.weight_ih_l0"], w["prefix_gru.weight_hh_l0"])[:, start:]
    else:
        start, tokens = 1 + c["pure_draft_prefix_len"], label.reshape(N, B)[:, :-1]
        states = gru(embed[tokens], w["prefix_gru.weight_ih_l0"], w["prefix_gru.weight_hh_l0"])[:, start - 1:]
    u = np.concatenate([hidden.reshape((N, B, -1))[:, start:], states], axis=-1) @ w["embed_proj.0.weight"].T
    added = (u / (1 + np.exp(-u))) @ w["embed_proj.2.weight"].T
    return np.concatenate([numpy.zeros((N, start, added.shape[-1])), added], axis=1)


def dpace(c, q, scored):
    """Weights of the slots of every block from the draft's confidence in the labels; numbers, never traced."""
    smooth = numpy.where(scored, (1 - c["dpace_alpha"]) * q + c["dpace_alpha"], 1.0)
    prefix = numpy.cumprod(smooth, axis=1)
    suffix = numpy.cumsum((prefix * scored)[:, ::-1], axis=1)[:, ::-1]
    return {"dpace": suffix, "dpace-cumulative-confidence-only": prefix, "dpace-continuation-value-only": suffix / prefix}[c["loss_type"]]


def accept_lengths(right, scored):
    """1 + the leading run of right scored slots, for every block with a scored slot."""
    lengths = []
    for r, m in zip(right, scored):
        if m.any():
            run = list(r[m]) + [False]
            lengths.append(1 + run.index(False))
    return lengths


def plain(x):
    """The numbers of a possibly traced array."""
    return getattr(x, "_value", x)


def forward(w, c, inputs, embed, head, hits=None):
    B, N, S = c["block_size"], c["num_anchors"], c["seq_len"]
    D, eps, theta = c["head_dim"], c["rms_norm_eps"], c["rope_theta"]
    domino, shift = c["algorithm"] == "domino", int(c.get("shift_label", False))
    loss_type = c.get("loss_type", "dflash")
    loss_sum = base_sum = weight_sum = correct = base_correct = mask_sum = 0.0
    accepted, base_accepted = [], []
    for s in range(c["batch"]):
        anchors, keep = inputs["anchor_positions"][s], inputs["block_keep_mask"][s].astype(bool)
        ids = numpy.full((N, B), c["mask_token_id"])
        ids[keep, 0] = inputs["input_ids"][s][anchors[keep]]
        x = embed[ids.reshape(-1)]
        position = (anchors[:, None] + numpy.arange(B)).reshape(-1)
        context = rms(inputs["hidden_states"][s] @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
        block = numpy.repeat(numpy.arange(N), B)
        slot = numpy.tile(numpy.arange(B), N)

        def visible(i):
            before = numpy.arange(S)[None, :] < numpy.repeat(anchors, B)[:, None]
            own = block[:, None] == block[None, :]
            if c.get("layer_types", ["full_attention"] * (i + 1))[i] == "sliding_attention":
                before &= numpy.arange(S)[None, :] >= position[:, None] - (c["sliding_window"] - 1)
                own &= slot[None, :] <= slot[:, None]
            return numpy.concatenate([before, own], axis=1) & numpy.repeat(keep, B)[:, None]

        all_positions = numpy.concatenate([numpy.arange(S), position])
        for i in range(c["num_hidden_layers"]):
            p = lambda name: w[f"layers.{i}.{name}.weight"]
            h = rms(x, p("input_layernorm"), eps)
            both = np.concatenate([context, h], axis=0)
            q = rms((h @ p("self_attn.q_proj").T).reshape((N * B, -1, D)), p("self_attn.q_norm"), eps)
            k = rms((both @ p("self_attn.k_proj").T).reshape((S + N * B, -1, D)), p("self_attn.k_norm"), eps)
            v = (both @ p("self_attn.v_proj").T).reshape((S + N * B, -1, D))
            a = attention(rotate(q, position, theta), rotate(k, all_positions, theta), v, visible(i))
            x = x + a @ p("self_attn.o_proj").T
            h = rms(x, p("post_attention_layernorm"), eps)
            g = h @ p("mlp.gate_proj").T
            x = x + (g / (1 + np.exp(-g)) * (h @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T
        hidden = rms(x, w["norm.weight"], eps)
        logits = hidden @ head.T
        target = position + shift
        inside = numpy.minimum(target, S - 1)
        mask = numpy.repeat(keep, B) * (target < S) * (slot + shift > 0) * inputs["loss_mask"][s][inside]
        label = inputs["input_ids"][s][inside]
        weight = mask.copy()
        if c["loss_decay_gamma"] is not None and loss_type == "dflash":
            weight = weight * numpy.exp(-numpy.maximum(slot - 1 + shift, 0) / c["loss_decay_gamma"])

        def cross_entropy(logits):
            top = np.max(logits, axis=1, keepdims=True)
            return np.log(np.sum(np.exp(logits - top), axis=1)) + top[:, 0] - logits[numpy.arange(N * B), label]

        # Under differentiation these are traced values; only the metrics pass needs numbers.
        right = lambda logits: numpy.argmax(plain(logits), axis=1) == label
        scored = (mask > 0).reshape(N, B)
        if domino:
            ce = cross_entropy(logits)
            base_sum = base_sum + np.sum(weight * ce)
            base_correct += (mask * right(logits)).sum()
            base_accepted += accept_lengths(right(logits).reshape(N, B), scored)
            logits = logits + correction(w, c, hidden, inputs["input_ids"][s], anchors, label, embed).reshape((N * B, -1))
        ce = cross_entropy(logits)
        if loss_type != "dflash":
            weight = mask * dpace(c, numpy.exp(-plain(ce)).reshape(N, B), scored).reshape(-1)
        loss_sum = loss_sum + np.sum(weight * ce)
        weight_sum += weight.sum()
        mask_sum += mask.sum()
        predicted = numpy.argmax(plain(logits), axis=1)
        if hits is not None:
            hits += [(s, target[r], predicted[r]) for r in range(N * B) if mask[r] and r % 3 == 1]
        correct += (mask * right(logits)).sum()
        accepted += accept_lengths(right(logits).reshape(N, B), scored)
    out = {"out.accuracy": correct / (mask_sum + 1e-6), "metric.accuracy_denom": mask_sum}
    if loss_type != "dflash":
        return loss_sum / c["batch"], out
    loss = loss_sum / (weight_sum + 1e-6)
    if domino:
        base = base_sum / (weight_sum + 1e-6)
        mean = lambda lengths: sum(lengths) / (len(lengths) + 1e-6)
        out |= {
            "metric.final_loss": plain(loss), "metric.base_loss": plain(base),
            "metric.base_accuracy": base_correct / (mask_sum + 1e-6), "metric.accept_len": mean(accepted),
            "metric.base_accept_len": mean(base_accepted), "metric.lambda_base": c["lambda_base"],
        }
        loss = (1 - c["lambda_base"]) * loss + c["lambda_base"] * base
    return loss, out


def make(name, seed):
    changes, anchors, keep, supervised = VARIANTS[name]
    c = dict(BASE, name=name, **changes)
    rng = numpy.random.default_rng(seed)
    H, Q, KV = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    I, V = c["intermediate_size"], c["vocab_size"]
    shapes = {"fc": (H, c["num_context_features"] * H), "hidden_norm": (H,), "norm": (H,)}
    for i in range(c["num_hidden_layers"]):
        layer = {
            "input_layernorm": (H,), "self_attn.q_proj": (Q, H), "self_attn.k_proj": (KV, H), "self_attn.v_proj": (KV, H),
            "self_attn.o_proj": (H, Q), "self_attn.q_norm": (c["head_dim"],), "self_attn.k_norm": (c["head_dim"],),
            "post_attention_layernorm": (H,), "mlp.gate_proj": (I, H), "mlp.up_proj": (I, H), "mlp.down_proj": (H, I),
        }
        shapes |= {f"layers.{i}.{k}": shape for k, shape in layer.items()}
    shapes = {f"{k}.weight": shape for k, shape in shapes.items()}
    if c["algorithm"] == "domino":
        E, G = c["emb_dim"], c["gru_hidden_dim"]
        shapes |= {
            "prefix_gru.weight_ih_l0": (3 * G, H), "prefix_gru.weight_hh_l0": (3 * G, G),
            "embed_proj.0.weight": (E, H + G), "embed_proj.2.weight": (V, E),
        }
    # Everything is rounded to 32 bits first, so that both sides start from the same numbers.
    f32 = lambda a: a.astype(numpy.float32).astype(numpy.float64)
    w = {
        k: f32(1 + 0.2 * rng.normal(size=s) if len(s) == 1 else rng.normal(size=s) * 1.2 / s[1] ** 0.5)
        for k, s in shapes.items()
    }
    embed, head = f32(rng.normal(size=(V, H))), f32(rng.normal(size=(V, H)) * 0.5)
    S = c["seq_len"]
    inputs = {
        "input_ids": rng.integers(0, V - 1, size=(c["batch"], S)),
        "hidden_states": f32(rng.normal(size=(c["batch"], S, c["num_context_features"] * H))),
        "loss_mask": numpy.array([[float(supervised(s, j)) for j in range(S)] for s in range(c["batch"])]),
        "anchor_positions": numpy.array(anchors),
        "block_keep_mask": numpy.array(keep, dtype=numpy.uint8),
    }
    # Some predictions are made right, so that the accuracy is not just 0: tokens that are no anchors enter as labels only.
    hits = []
    forward(w, c, inputs, embed, head, hits)
    for s, position, token in hits:
        if position not in inputs["anchor_positions"][s]:
            inputs["input_ids"][s, position] = token
    loss, out = forward(w, c, inputs, embed, head)
    gradients = grad(lambda w: forward(w, c, inputs, embed, head)[0])(w)
    to32 = lambda a: numpy.ascontiguousarray(a, dtype=numpy.float32)
    tensors = {f"w.{k}": to32(v) for k, v in w.items()} | {f"g.{k}": to32(v) for k, v in gradients.items()}
    tensors |= {"frozen.embed_tokens": to32(embed), "frozen.lm_head": to32(head)}
    tensors |= {f"in.{k}": to32(v) if v.dtype == numpy.float64 else v for k, v in inputs.items()}
    tensors |= {k: numpy.array([v], dtype=numpy.float64) for k, v in ({"out.loss": loss} | out).items()}
    path = pathlib.Path(__file__).with_name(f"{name}.safetensors")
    save_file(tensors, str(path), metadata={"config": json.dumps(c)})
    print(f"{path.name}: loss {loss:.6f}, " + ", ".join(f"{k.split('.')[1]} {v:.4f}" for k, v in out.items()))


for number, name in enumerate(VARIANTS):
    make(name, 1000 + number)
