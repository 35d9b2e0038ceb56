//! Drawing anchors, and building the draft's input from them.
//!
//! Shapes: b sequences of S tokens; P = max(S - B, 0) + 1 candidate positions per sequence; w blocks per sequence (N, or the
//! host-known width); B slots per block.

use super::support::kernel;

/// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), first output word.
/// The CUDA C twin is `philox` in `prelude.cu`; both are integer arithmetic, hence equal bit for bit.
#[must_use]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> u32 {
    for _ in 0..10 {
        let wide = |m: u32, c: u32| u64::from(m) * u64::from(c);
        let (p0, p1) = (wide(0xD251_1F53, counter[0]), wide(0xCD9E_8D57, counter[2]));
        #[allow(clippy::cast_possible_truncation)] // high and low halves are wanted
        let halves = |p: u64| ((p >> 32) as u32, p as u32);
        let ((h0, l0), (h1, l1)) = (halves(p0), halves(p1));
        counter = [h1 ^ counter[1] ^ key[0], l1, h0 ^ counter[3] ^ key[1], l0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter[0]
}

/// The random key of a position: uniform in [0, 1), 24 bits, exact in f32.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub fn random_key(seed: u64, draw: u32, sequence: usize, position: usize) -> f32 {
    let word = philox([position as u32, sequence as u32, draw, 0], [seed as u32, (seed >> 32) as u32]);
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

kernel! {
    /// Counts the supervised candidate positions of each sequence (`loss_mask` > 0.5), derives the historical width
    /// `max(1, min(N, max count - 1))`, and advances the draw counter by one. One thread block does it all.
    anchor_count(
        loss_mask: read f32 [sequences * seq_len],
        counts: write i32 [sequences],
        width: write i32 [1],
        draws: write u32 [1];
        sequences: usize, seq_len: usize, candidates: usize, most: i32
    )
    grid [1, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    int best = 0;
    for (int s = 0; s < sequences; ++s) {
        float mine = 0.0f;
        for (int j = threadIdx.x; j < candidates; j += blockDim.x) mine += loss_mask[(long long)s * seq_len + j] > 0.5f;
        int count = (int)block_sum(mine, scratch);  // exact: counts stay far below 2^24
        if (threadIdx.x == 0) counts[s] = count;
        best = max(best, count);
    }
    if (threadIdx.x == 0) {
        width[0] = max(1, min(most, best - 1));
        draws[0] += 1;
    }
}"
    host {
        let mut best = 0;
        for s in 0..sequences {
            let candidates = &loss_mask[s * seq_len..][..candidates];
            counts[s] = i32::try_from(candidates.iter().filter(|m| **m > 0.5).count()).unwrap_or(i32::MAX);
            best = best.max(counts[s]);
        }
        width[0] = (best - 1).min(most).max(1);
        draws[0] = draws[0].wrapping_add(1);
    }
}

kernel! {
    /// Draws anchors: every candidate gets a random key, unsupervised ones the key sentinel; the `limit` smallest keys win
    /// (ties: lower position first), where `limit` is `host_width`, or `width[0]` when that is 0; winners are sorted by position,
    /// unsupervised ones as the position sentinel. Blocks beyond min(count, limit) get the pad position and keep = 0.
    ///
    /// The three constants are arguments, or are read from device memory where a pointer is given.
    anchor_draw(
        loss_mask: read f32 [sequences * seq_len],
        counts: read i32 [sequences],
        width: read i32 [1],
        draws: read u32 [1],
        keys: write f32 [sequences * candidates],
        chosen: write i32 [sequences * candidates],
        anchors: write i32 [sequences * blocks],
        keep: write i32 [sequences * blocks],
        position_sentinel_at: maybe i32 [1],
        key_sentinel_at: maybe f32 [1],
        pad_position_at: maybe i32 [1];
        sequences: usize, seq_len: usize, candidates: usize, blocks: usize, host_width: i32, seed: u64,
        position_sentinel: i32, key_sentinel: f32, pad_position: i32
    )
    grid [sequences, 1, 1], block 256, shared 0;
    cuda "{
    int s = blockIdx.x;
    const float* mask = loss_mask + (long long)s * seq_len;
    float* key = keys + (long long)s * candidates;
    int* value = chosen + (long long)s * candidates;
    int* anchor = anchors + (long long)s * blocks;
    int* kept = keep + (long long)s * blocks;
    int far = position_sentinel_at ? *position_sentinel_at : position_sentinel;
    float last = key_sentinel_at ? *key_sentinel_at : key_sentinel;
    int pad = pad_position_at ? *pad_position_at : pad_position;
    int limit = host_width > 0 ? host_width : width[0];
    for (int j = threadIdx.x; j < candidates; j += blockDim.x) {
        unsigned int word = philox(j, s, draws[0], 0, (unsigned int)seed, (unsigned int)(seed >> 32));
        key[j] = mask[j] > 0.5f ? (float)(word >> 8) * (1.0f / 16777216.0f) : last;
    }
    for (int n = threadIdx.x; n < blocks; n += blockDim.x) {
        anchor[n] = pad;
        kept[n] = 0;
    }
    __syncthreads();
    // value[j]: what candidate j contributes to the sorted list, or -1 when its key is not among the smallest.
    for (int j = threadIdx.x; j < candidates; j += blockDim.x) {
        int rank = 0;
        for (int i = 0; i < candidates; ++i) rank += key[i] < key[j] || (key[i] == key[j] && i < j);
        value[j] = rank < limit ? (mask[j] > 0.5f ? j : far) : -1;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < candidates; j += blockDim.x) {
        if (value[j] < 0) continue;
        int slot = 0;
        for (int i = 0; i < candidates; ++i)
            slot += value[i] >= 0 && (value[i] < value[j] || (value[i] == value[j] && i < j));
        if (slot < min(counts[s], limit) && slot < blocks) {
            anchor[slot] = value[j];
            kept[slot] = 1;
        }
    }
}"
    host {
        let far = position_sentinel_at.map_or(position_sentinel, |p| p[0]);
        let last = key_sentinel_at.map_or(key_sentinel, |p| p[0]);
        let pad = pad_position_at.map_or(pad_position, |p| p[0]);
        let limit = usize::try_from(if host_width > 0 { host_width } else { width[0] }).unwrap_or(0);
        anchors.fill(pad);
        keep.fill(0);
        for s in 0..sequences {
            let mask = &loss_mask[s * seq_len..][..candidates];
            let keys = &mut keys[s * candidates..][..candidates];
            for (j, key) in keys.iter_mut().enumerate() {
                *key = if mask[j] > 0.5 { random_key(seed, draws[0], s, j) } else { last };
            }
            let mut order: Vec<usize> = (0..candidates).collect();
            order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]).then(a.cmp(b)));
            let chosen = &mut chosen[s * candidates..][..candidates];
            chosen.fill(-1);
            for j in order.into_iter().take(limit) {
                chosen[j] = if mask[j] > 0.5 { i32::try_from(j).unwrap_or(far) } else { far };
            }
            let mut winners: Vec<i32> = chosen.iter().copied().filter(|v| *v >= 0).collect();
            winners.sort_unstable();
            let kept = usize::try_from(counts[s]).unwrap_or(0).min(limit).min(blocks);
            for (n, winner) in winners.into_iter().take(kept).enumerate() {
                anchors[s * blocks + n] = winner;
                keep[s * blocks + n] = 1;
            }
        }
    }
}

kernel! {
    /// Draft input: slot 0 of a kept block is its anchor's token, everything else the mask token (an argument, or read from
    /// device memory where a pointer is given); `x`\[b w B, H\] is the frozen embedding of those ids.
    noise_embed(
        input_ids: read i32 [sequences * seq_len],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        embed_tokens: read f32 [vocabulary * hidden],
        mask_token_at: maybe i32 [1],
        noise_ids: write i32 [sequences * blocks * slots],
        x: write f32 [sequences * blocks * slots * hidden];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, vocabulary: usize, hidden: usize, mask_token: i32
    )
    grid [sequences * blocks * slots, 1, 1], block 128, shared 0;
    cuda "{
    int row = blockIdx.x, block = row / slots, s = block / blocks;
    int id = mask_token_at ? *mask_token_at : mask_token;
    if (row % slots == 0 && keep[block]) id = input_ids[(long long)s * seq_len + anchors[block]];
    if (threadIdx.x == 0) noise_ids[row] = id;
    for (int i = threadIdx.x; i < hidden; i += blockDim.x)
        x[(long long)row * hidden + i] = embed_tokens[(long long)id * hidden + i];
}"
    host {
        let mask_token = mask_token_at.map_or(mask_token, |p| p[0]);
        for row in 0..sequences * blocks * slots {
            let block = row / slots;
            let id = if row % slots == 0 && keep[block] != 0 {
                input_ids[block / blocks * seq_len + usize::try_from(anchors[block]).unwrap_or(usize::MAX)]
            } else {
                mask_token
            };
            noise_ids[row] = id;
            let id = usize::try_from(id).unwrap_or(usize::MAX);
            x[row * hidden..][..hidden].copy_from_slice(&embed_tokens[id * hidden..][..hidden]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the Random123 distribution (kat_vectors, philox4x32 10).
    #[test]
    fn philox_gives_its_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), 0x6627_e8d5);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), 0x408f_276d);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            0xd16c_fe09
        );
    }
}
