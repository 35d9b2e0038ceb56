//! The frozen target model and the worker that runs it: what the draft model learns from.
//!
//! In: token sequences (or feature files). Out: [`Features`] with sample ids, in order, through a bounded queue. Must never
//! touch CUDA: the target runs on host threads, so that nothing here can show up in an audit of the training step.

pub mod features;
pub mod target;
pub mod tensor_file;
pub mod window;
pub mod worker;

/// What the target knows about one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// The number of the sample in the endless series; acknowledged once a step has trained on it.
    pub sample: u64,
    /// Token ids, [S].
    pub input_ids: Vec<i32>,
    /// Hidden states of the tapped target layers, concatenated per token, [S, T*H].
    pub hidden_states: Vec<f32>,
    /// 1 where the token is supervised, else 0, [S].
    pub loss_mask: Vec<f32>,
}

/// Features on their way to a trainer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What is learned from.
    pub features: Features,
    /// The run ends behind the step that trains on it.
    pub last: bool,
}
