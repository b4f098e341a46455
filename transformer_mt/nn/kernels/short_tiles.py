"""The Triton kernels of `short_attention`: one program for each sentence and head.

A sentence of at most BLOCK queries and BLOCK keys is attended in one program, forward and backward:
its scores never leave the chip, and its gradients are written once, by plain stores. There is no
atomic addition, so the same inputs give the same bits. Several launches share the sentences of a
batch: each takes those whose longer side is above `least` and at most `most`. With LONG, a sentence
has several tiles, and a program takes one of them.

Arguments of both kernels:
    q, k, v: Queries, keys and values (N, H, K), `*_row` elements from row to row and `*_head` from
        head to head. Values lie as keys do.
    mixed, grad: The result (N, H, K) and its gradient, contiguous.
    log_sums: Logarithms to base 2 of the sums of exponentials (H, N), fp32.
    q_offsets, k_offsets: First row of each sentence, and the end (B + 1,), int32.
    seeds: Of dropout (1,), int64.
    causal: 1: a query sees keys up to its own place; 0: it sees all.
    scale: Factor to the scores, with that of base 2; `softmax_scale` is without.
    p: Share of the weights that are dropped.
    HEAD, WIDTH: K, and the next power of two.
    LAST: Whether this is the last launch, which writes zeros for sentences above `most`: a tail.

Only constants are annotated: Triton would take another annotation for the type to compile for.
"""

import triton
import triton.language as tl


@triton.jit
def _tile(base, rows, row_stride, num_rows, HEAD: tl.constexpr, WIDTH: tl.constexpr):
    """Load rows (BLOCK, WIDTH); zeros outside of the sentence and of the head."""
    dims = tl.arange(0, WIDTH)
    inside = (rows < num_rows)[:, None] & (dims < HEAD)[None, :]
    return tl.load(base + rows[:, None] * row_stride + dims[None, :], mask=inside, other=0.0)


@triton.jit
def _put(base, rows, row_stride, num_rows, values, HEAD: tl.constexpr, WIDTH: tl.constexpr):
    """Store those rows (BLOCK, WIDTH) that are inside of the sentence."""
    dims = tl.arange(0, WIDTH)
    inside = (rows < num_rows)[:, None] & (dims < HEAD)[None, :]
    pointers = base + rows[:, None] * row_stride + dims[None, :]
    tl.store(pointers, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def _clear(
    base, row_stride, num_rows, BLOCK: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr
):
    """Store zeros in all rows of a sentence."""
    for start in range(0, num_rows, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        zeros = tl.zeros([BLOCK, WIDTH], tl.float32)
        _put(base, rows, row_stride, num_rows, zeros, HEAD, WIDTH)


@triton.jit
def _extent(offsets, sentence):
    """Return the first row of a sentence, 64-bit as all offsets of rows are, and its length."""
    start = tl.load(offsets + sentence)
    return start.to(tl.int64), tl.load(offsets + sentence + 1) - start


@triton.jit
def _scores(q, k, rows, keys, num_keys, causal, scale):
    """Return scores (BLOCK, BLOCK); -inf for keys that are not seen."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    seen = (keys < num_keys)[None, :] & ((causal == 0) | (rows[:, None] >= keys[None, :]))
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _drop(x, seeds, first_row, head, rows, keys, p):
    """Drop elements with probability `p`: the same whenever sentence, head and places are."""
    row = (first_row.to(tl.int32) + rows)[:, None] + tl.zeros_like(keys)[None, :]
    key = tl.zeros_like(rows)[:, None] + keys[None, :]
    zero = tl.zeros_like(row)
    # Seven rounds pass all statistical tests, too (Salmon et al. 2011, table 2).
    bits, _, _, _ = tl.philox(tl.load(seeds), row, key, zero + head, zero, 7)
    return tl.where(tl.uint_to_uniform_float(bits) >= p, x / (1 - p), 0.0)


@triton.jit
def _weights(
    q, k, v, grad, log_sum, seeds, first_row, head, rows, keys, num_keys, causal, scale, p,
    DROPS: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile, the same after dropout, and the gradient to the former."""
    weights = tl.exp2(_scores(q, k, rows, keys, num_keys, causal, scale) - log_sum[:, None])
    gradient = tl.dot(grad, tl.trans(v), input_precision="ieee")
    dropped = weights
    if DROPS:
        dropped = _drop(weights, seeds, first_row, head, rows, keys, p)
        gradient = _drop(gradient, seeds, first_row, head, rows, keys, p)
    return weights, dropped, gradient


@triton.jit
def forward(
    q, k, v, mixed, log_sums, q_offsets, k_offsets, seeds, q_row, q_head, k_row, k_head,
    num_rows, num_heads, causal, scale, p, least, most,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    LAST: tl.constexpr, LONG: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Mix the values of a sentence and head, or with LONG those for one tile of its queries."""
    sentence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q_start, q_len = _extent(q_offsets, sentence)
    k_start, k_len = _extent(k_offsets, sentence)
    length = tl.maximum(q_len, k_len)
    mixed_row = num_heads * HEAD
    mixed += q_start * mixed_row + head * HEAD
    rows = block * BLOCK + tl.arange(0, BLOCK)
    if (length > least) & (length <= most) & (block * BLOCK < q_len):
        k += k_start * k_row + head * k_head
        v += k_start * k_row + head * k_head
        q_tile = _tile(q + q_start * q_row + head * q_head, rows, q_row, q_len, HEAD, WIDTH)
        highest = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        sums = tl.zeros([BLOCK, WIDTH], tl.float32)
        for start in range(0, k_len if LONG else 1, BLOCK):
            keys = start + tl.arange(0, BLOCK)
            k_tile = _tile(k, keys, k_row, k_len, HEAD, WIDTH)
            v_tile = _tile(v, keys, k_row, k_len, HEAD, WIDTH)
            scores = _scores(q_tile, k_tile, rows, keys, k_len, causal, scale)
            higher = tl.maximum(highest, tl.max(scores, 1))
            # Infinite as long as a query has seen no key.
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp2(scores - shift[:, None])
            shrunk = tl.exp2(highest - shift)
            total = total * shrunk + tl.sum(weights, 1)
            if DROPS:
                weights = _drop(weights, seeds, q_start, head, rows, keys, p)
            products = tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
            sums = sums * shrunk[:, None] + products
            highest = higher
        sees = total > 0
        result = sums / tl.where(sees, total, 1.0)[:, None]
        _put(mixed, rows, mixed_row, q_len, result, HEAD, WIDTH)
        log_sum = tl.where(sees, highest + tl.log2(total), float("inf"))
        tl.store(log_sums + head * num_rows + q_start + rows, log_sum, mask=rows < q_len)
    if LAST:  # settled when it is compiled
        if (length > most) & (block == 0):
            _clear(mixed, mixed_row, q_len, BLOCK, HEAD, WIDTH)


@triton.jit
def _backward_of_queries(
    q, k, v, mixed, grad, log_sums, dq, seeds, first_row, head, own, q_len, k_len,
    q_row, k_row, mixed_row, dq_row, causal, scale, softmax_scale, p,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one tile of the queries of a sentence, over all tiles of its keys."""
    q_tile = _tile(q, own, q_row, q_len, HEAD, WIDTH)
    grad_tile = _tile(grad, own, mixed_row, q_len, HEAD, WIDTH)
    mixed_tile = _tile(mixed, own, mixed_row, q_len, HEAD, WIDTH)
    log_sum = tl.load(log_sums + own, mask=own < q_len, other=float("inf"))
    mean = tl.sum(grad_tile.to(tl.float32) * mixed_tile.to(tl.float32), 1)
    sums = tl.zeros([BLOCK, WIDTH], tl.float32)
    for start in range(0, k_len, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        k_tile = _tile(k, keys, k_row, k_len, HEAD, WIDTH)
        v_tile = _tile(v, keys, k_row, k_len, HEAD, WIDTH)
        weights, _, gradient = _weights(
            q_tile, k_tile, v_tile, grad_tile, log_sum, seeds, first_row, head,
            own, keys, k_len, causal, scale, p, DROPS,
        )  # fmt: skip
        of_scores = (weights * (gradient - mean[:, None])).to(k_tile.dtype)
        sums += tl.dot(of_scores, k_tile, input_precision="ieee")
    _put(dq, own, dq_row, q_len, sums * softmax_scale, HEAD, WIDTH)


@triton.jit
def _backward_of_keys(
    q, k, v, mixed, grad, log_sums, dk, dv, seeds, first_row, head, own, q_len, k_len,
    q_row, k_row, mixed_row, dk_row, causal, scale, softmax_scale, p,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Write those of one tile of the keys and values, over all tiles of the queries."""
    k_tile = _tile(k, own, k_row, k_len, HEAD, WIDTH)
    v_tile = _tile(v, own, k_row, k_len, HEAD, WIDTH)
    k_sums = tl.zeros([BLOCK, WIDTH], tl.float32)
    v_sums = tl.zeros([BLOCK, WIDTH], tl.float32)
    for start in range(0, q_len, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        q_tile = _tile(q, rows, q_row, q_len, HEAD, WIDTH)
        grad_tile = _tile(grad, rows, mixed_row, q_len, HEAD, WIDTH)
        mixed_tile = _tile(mixed, rows, mixed_row, q_len, HEAD, WIDTH)
        log_sum = tl.load(log_sums + rows, mask=rows < q_len, other=float("inf"))
        mean = tl.sum(grad_tile.to(tl.float32) * mixed_tile.to(tl.float32), 1)
        weights, dropped, gradient = _weights(
            q_tile, k_tile, v_tile, grad_tile, log_sum, seeds, first_row, head,
            rows, own, k_len, causal, scale, p, DROPS,
        )  # fmt: skip
        of_scores = (weights * (gradient - mean[:, None])).to(q_tile.dtype)
        dropped = dropped.to(q_tile.dtype)
        v_sums += tl.dot(tl.trans(dropped), grad_tile, input_precision="ieee")
        k_sums += tl.dot(tl.trans(of_scores), q_tile, input_precision="ieee")
    _put(dk, own, dk_row, k_len, k_sums * softmax_scale, HEAD, WIDTH)
    _put(dv, own, dk_row, k_len, v_sums, HEAD, WIDTH)


@triton.jit
def _backward_at_once(
    q, k, v, grad, log_sums, dq, dk, dv, seeds, first_row, head, own, q_len, k_len,
    q_row, k_row, mixed_row, dq_row, dk_row, causal, scale, softmax_scale, p,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Write all gradients of a sentence that fits into one tile."""
    q_tile = _tile(q, own, q_row, q_len, HEAD, WIDTH)
    k_tile = _tile(k, own, k_row, k_len, HEAD, WIDTH)
    v_tile = _tile(v, own, k_row, k_len, HEAD, WIDTH)
    grad_tile = _tile(grad, own, mixed_row, q_len, HEAD, WIDTH)
    log_sum = tl.load(log_sums + own, mask=own < q_len, other=float("inf"))
    weights, dropped, gradient = _weights(
        q_tile, k_tile, v_tile, grad_tile, log_sum, seeds, first_row, head,
        own, own, k_len, causal, scale, p, DROPS,
    )  # fmt: skip
    v_sums = tl.dot(tl.trans(dropped.to(q_tile.dtype)), grad_tile, input_precision="ieee")
    _put(dv, own, dk_row, k_len, v_sums, HEAD, WIDTH)
    mean = tl.sum(weights * gradient, 1)
    of_scores = (weights * (gradient - mean[:, None])).to(q_tile.dtype)
    q_sums = tl.dot(of_scores, k_tile, input_precision="ieee") * softmax_scale
    _put(dq, own, dq_row, q_len, q_sums, HEAD, WIDTH)
    k_sums = tl.dot(tl.trans(of_scores), q_tile, input_precision="ieee") * softmax_scale
    _put(dk, own, dk_row, k_len, k_sums, HEAD, WIDTH)


@triton.jit
def backward(
    q, k, v, mixed, grad, log_sums, dq, dk, dv, q_offsets, k_offsets, seeds,
    q_row, q_head, k_row, k_head, dq_row, dk_row,
    num_rows, num_heads, causal, scale, softmax_scale, p, least, most,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    LAST: tl.constexpr, LONG: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a sentence and head, or with LONG those of one tile of rows.

    Those of queries, keys and values, `*_row` elements from row to row and K from head to head.
    """
    sentence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q_start, q_len = _extent(q_offsets, sentence)
    k_start, k_len = _extent(k_offsets, sentence)
    length = tl.maximum(q_len, k_len)
    q += q_start * q_row + head * q_head
    k += k_start * k_row + head * k_head
    v += k_start * k_row + head * k_head
    mixed_row = num_heads * HEAD
    mixed += q_start * mixed_row + head * HEAD
    grad += q_start * mixed_row + head * HEAD
    log_sums += head * num_rows + q_start
    dq += q_start * dq_row + head * HEAD
    dk += k_start * dk_row + head * HEAD
    dv += k_start * dk_row + head * HEAD
    own = block * BLOCK + tl.arange(0, BLOCK)
    if (length > least) & (length <= most):
        if LONG:
            if block * BLOCK < q_len:
                _backward_of_queries(
                    q, k, v, mixed, grad, log_sums, dq, seeds, q_start, head, own, q_len, k_len,
                    q_row, k_row, mixed_row, dq_row, causal, scale, softmax_scale, p,
                    HEAD, WIDTH, BLOCK, DROPS,
                )  # fmt: skip
            if block * BLOCK < k_len:
                _backward_of_keys(
                    q, k, v, mixed, grad, log_sums, dk, dv, seeds, q_start, head, own, q_len, k_len,
                    q_row, k_row, mixed_row, dk_row, causal, scale, softmax_scale, p,
                    HEAD, WIDTH, BLOCK, DROPS,
                )  # fmt: skip
        else:
            _backward_at_once(
                q, k, v, grad, log_sums, dq, dk, dv, seeds, q_start, head, own, q_len, k_len,
                q_row, k_row, mixed_row, dq_row, dk_row, causal, scale, softmax_scale, p,
                HEAD, WIDTH, DROPS,
            )  # fmt: skip
    if LAST:
        if (length > most) & (block == 0):
            _clear(dq, dq_row, q_len, BLOCK, HEAD, WIDTH)
            _clear(dk, dk_row, k_len, BLOCK, HEAD, WIDTH)
            _clear(dv, dk_row, k_len, BLOCK, HEAD, WIDTH)
