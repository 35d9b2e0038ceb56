//! Waits per step as bars.
//!
//! In: an audit's steps. Out: an SVG with one bar per step, or, when there are more steps than can be told apart, one per run of
//! neighbours that shows the worst of them and says so.

use std::fmt::Write as _;

use crate::Audit;
use crate::audit::{ProcessRow, Step, StepKind, plural};

const MOST_BARS: usize = 300;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 180.0;
/// Room for the numbers at the left and below.
const LEFT: f64 = 36.0;
const BOTTOM: f64 = 20.0;
const TOP: f64 = 8.0;

pub(super) fn steps(page: &mut String, audit: &Audit) {
    if audit.steps.is_empty() {
        return;
    }
    let per_bar = audit.steps.len().div_ceil(MOST_BARS);
    // The worst of neighbours stands for them: by judgement, then by waits.
    let bars: Vec<&Step> = audit
        .steps
        .chunks(per_bar)
        .filter_map(|steps| {
            steps.iter().max_by_key(|step| (step.over_budget, step.waits, std::cmp::Reverse(step.index)))
        })
        .collect();
    let most = bars.iter().map(|step| step.waits).max().unwrap_or(0).max(1);
    let _ = write!(
        page,
        "<section>\n<h2>Waits per step</h2>\n<p class=\"legend\"><span class=\"key over\"></span>over the budget <span class=\"key \
         ordinary\"></span>ordinary <span class=\"key log\"></span>log <span class=\"key warmup\"></span>warm-up <span class=\"key \
         unfinished\"></span>unfinished</p>\n"
    );
    if per_bar > 1 {
        let _ = writeln!(
            page,
            "<p class=\"quiet\">{} in {} bars: each shows the worst of up to {per_bar}.</p>",
            plural(audit.steps.len() as u64, "step", "steps"),
            bars.len()
        );
    }
    let _ = writeln!(
        page,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Waits per step\">"
    );
    let plot = HEIGHT - BOTTOM - TOP;
    let y = |waits: u64| TOP + plot * (1.0 - waits as f64 / most as f64);
    for waits in ticks(most) {
        let at = y(waits);
        let _ = writeln!(
            page,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"axis\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{waits}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    // A few steps make no walls.
    let pitch = ((WIDTH - LEFT) / bars.len() as f64).min(48.0);
    let gap = if pitch > 4.0 { pitch * 0.2 } else { 0.0 };
    for (index, step) in bars.iter().enumerate() {
        let class = if step.over_budget { "over" } else { step.kind.id() };
        let x = LEFT + pitch * index as f64;
        // A step without waits is still a step: a thin line.
        let top = y(step.waits).min(HEIGHT - BOTTOM - 1.5);
        let number = step.number.unwrap_or(step.index as i64);
        let process = if audit.processes.len() > 1 { process_name(audit, step) } else { String::new() };
        let _ = writeln!(
            page,
            "<rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>step {number}{process}, {}: {}</title></rect>",
            (pitch - gap).max(0.5),
            HEIGHT - BOTTOM - top,
            kind_word(step.kind),
            plural(step.waits, "wait", "waits")
        );
        let every = bars.len().div_ceil(12);
        if index % every == 0 {
            let _ = writeln!(
                page,
                "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
                x + (pitch - gap) / 2.0,
                HEIGHT - 5.0
            );
        }
    }
    page.push_str("</svg>\n</section>\n");
}

fn process_name(audit: &Audit, step: &Step) -> String {
    match audit.processes.get(step.process as usize) {
        Some(process) => format!(" of {}", ProcessRow::name_of(process.rank, process.pid)),
        None => String::new(),
    }
}

fn kind_word(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Warmup => "warm-up",
        kind => kind.id(),
    }
}

/// 0, the most, and round numbers between, at most five.
fn ticks(most: u64) -> Vec<u64> {
    let step = [1u64, 2, 5].iter().cycle().enumerate().map(|(index, base)| {
        base.saturating_mul(10u64.saturating_pow(u32::try_from(index / 3).unwrap_or(u32::MAX)))
    });
    let step = step.take(60).find(|step| most / step <= 4).unwrap_or(most);
    (0..=most / step).map(|index| index * step).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(super::ticks(1), [0, 1]);
        assert_eq!(super::ticks(7), [0, 2, 4, 6]);
        assert_eq!(super::ticks(48), [0, 10, 20, 30, 40]);
        assert!(super::ticks(u64::MAX).len() <= 6);
    }
}
