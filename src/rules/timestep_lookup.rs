//! A diffusion scheduler looks its timestep up on the device.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "timestep-lookup",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a scheduler looks its timestep up on the device",
    recognised: "a read from inside of a scheduler's index_for_timestep or _init_step_index.",
    cuda: "nonzero (a count is read back) and then an 8-byte read of the index, with a stream synchronise each.",
    waits: "The table of timesteps is on the device, and the index is wanted on the host.",
    see: "Two reads per sample or step, below scheduling_*.py.",
    pytorch: "Keep the table on the CPU, or keep the index yourself: draw indices on the host and look the sigmas \
        up on the device with them; set scheduler.set_begin_index(0) in sampling loops.",
    rust: "Draw the index on the host, pass it as a kernel argument.",
    leave: "In a sampling demo.",
    breaks: "An index kept on the host goes wrong if steps are skipped or the scheduler is shared by threads.",
    fits: |facts| facts.library_function(&["index_for_timestep", "_init_step_index"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[read(8).ops(&["aten::nonzero"]).python(&[
                (
                    "/x/site-packages/diffusers/schedulers/scheduling_flow_match_euler_discrete.py",
                    "FlowMatchEulerDiscreteScheduler.index_for_timestep",
                ),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                read(8).ops(&["aten::nonzero"]).python(&[
                    ("/home/me/schedule.py", "index_for_timestep"),
                    ("/home/me/train.py", "train"),
                ]),
                "mask-indexing",
            )],
        );
    }
}
