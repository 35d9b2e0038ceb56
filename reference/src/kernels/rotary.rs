//! Rotary position embedding, half-rotation: element i of a head is paired with element i + D/2.

use super::support::kernel;

kernel! {
    /// Rotates every head of x\[rows, heads, D\] in place by the angle `position * theta^(-2i/D)`; `direction` = -1 is the
    /// inverse, which is also the backward pass. Positions: `anchors[row / slots] + row % slots` with anchors (draft rows),
    /// else `row % period` (context rows, period S).
    rotary(
        x: write f32 [rows * heads * head_dim],
        anchors: maybe i32 [rows / slots];
        rows: usize, heads: usize, head_dim: usize, slots: usize, period: usize, theta: f32, direction: f32
    )
    grid [rows, 1, 1], block 64, shared 0;
    cuda "{
    int row = blockIdx.x, half = head_dim / 2;
    int position = anchors ? anchors[row / slots] + row % slots : row % period;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float angle = position * powf(theta, -2.0f * i / head_dim);
        float c = cosf(angle), s = sinf(angle) * direction;
        for (int h = 0; h < heads; ++h) {
            float* head = x + ((long long)row * heads + h) * head_dim;
            float a = head[i], b = head[i + half];
            head[i] = a * c - b * s;
            head[i + half] = b * c + a * s;
        }
    }
}"
    host {
        let half = head_dim / 2;
        let frequencies: Vec<f32> =
            (0..half).map(|i| theta.powf(-2.0 * i as f32 / head_dim as f32)).collect();
        for row in 0..rows {
            let position = match anchors {
                Some(anchors) => anchors[row / slots] as f32 + (row % slots) as f32,
                None => (row % period) as f32,
            };
            for (i, frequency) in frequencies.iter().enumerate() {
                let (s, c) = (position * frequency).sin_cos();
                let s = s * direction;
                for head in x[row * heads * head_dim..][..heads * head_dim].chunks_exact_mut(head_dim) {
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * c - b * s;
                    head[i + half] = b * c + a * s;
                }
            }
        }
    }
}
