//! Element by element: residual sums, the gated activation, scaling.

use super::support::kernel;

kernel! {
    /// out\[n\] = a + b.
    add(
        a: read f32 [n],
        b: read f32 [n],
        out: write f32 [n];
        n: usize
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}"
    host {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a + b;
        }
    }
}

kernel! {
    /// x\[n\] *= factor.
    scale(
        x: write f32 [n];
        n: usize, factor: f32
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}"
    host {
        for x in x.iter_mut() {
            *x *= factor;
        }
    }
}

kernel! {
    /// y\[n\] += factor * x.
    add_scaled(
        x: read f32 [n],
        y: write f32 [n];
        n: usize, factor: f32
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}"
    host {
        super::super::norm::axpy(factor, x, y);
    }
}

kernel! {
    /// out\[n\] = silu(gate) up, silu(g) = g / (1 + exp(-g)).
    silu_gate(
        gate: read f32 [n],
        up: read f32 [n],
        out: write f32 [n];
        n: usize
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}"
    host {
        for ((out, g), u) in out.iter_mut().zip(gate).zip(up) {
            *out = g / (1.0 + (-g).exp()) * u;
        }
    }
}

kernel! {
    /// Backward of [`silu_gate`](super::silu_gate): dgate\[n\] and dup\[n\] from dout\[n\].
    silu_gate_backward(
        dout: read f32 [n],
        gate: read f32 [n],
        up: read f32 [n],
        dgate: write f32 [n],
        dup: write f32 [n];
        n: usize
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = gate[i], s = 1.0f / (1.0f + expf(-g));
    dup[i] = dout[i] * g * s;
    dgate[i] = dout[i] * up[i] * s * (1.0f + g * (1.0f - s));
}"
    host {
        for i in 0..n {
            let (g, d) = (gate[i], dout[i]);
            let s = 1.0 / (1.0 + (-g).exp());
            dup[i] = d * g * s;
            dgate[i] = d * up[i] * s * (1.0 + g * (1.0 - s));
        }
    }
}
