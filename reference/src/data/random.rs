//! Random numbers that are a function of their seed alone: no state outlives a call, so nothing has to be saved.

/// SplitMix64 (Steele, Lea, Flood 2014): one multiply-xorshift chain per number, full period 2^64.
#[derive(Clone, Debug)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A generator for this list of numbers; lists that differ give unrelated generators.
    pub fn of(key: &[u64]) -> Self {
        let mut state = 0x243f_6a88_85a3_08d3;
        for part in key {
            state = mix(state ^ mix(part.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        }
        SplitMix { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound` (not zero). The bias is below bound / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A value in [0, 1) with 24 random bits.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A value of mean 0 and variance 1: four uniform numbers added. Weights need no more, and unlike a transform through
    /// logarithms it gives the same bits on every machine.
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| self.uniform()).sum();
        (sum - 2.0) * 3f32.sqrt()
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The numbers 0..n in random order (Fisher and Yates).
pub fn permutation(n: usize, mut random: SplitMix) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut random = SplitMix::of(&[1]);
        let values: Vec<f64> = (0..100_000).map(|_| f64::from(random.normal())).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn keys_that_differ_give_other_numbers() {
        let first = |key: &[u64]| SplitMix::of(key).next_u64();
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[0]), first(&[0, 0]));
        assert_eq!(first(&[3, 4]), first(&[3, 4]));
    }
}
