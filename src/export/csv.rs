//! One line per wait, as RFC 4180 wants it.

use std::io::{self, Write};

use super::step_of;
use crate::report::words::place_text;
use crate::view::recording::{Recording, op_words};

const COLUMNS: &str = "wait,process,rank,thread,kind,rule,evidence,site,status,place,range,operator,calls,bytes,step,\
step_kind,position,position_unit,blocked_ns,waited_for\r\n";

/// Writes all waits in order of process, thread, time.
///
/// # Errors
/// What `out` says.
pub fn csv(rec: &Recording, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(COLUMNS.as_bytes())?;
    let unit = if rec.axis.measured() { "ns" } else { "call-order" };
    for (index, wait) in rec.judged.audit.waits.iter().enumerate() {
        let site = &rec.judged.audit.sites[wait.site as usize];
        let process = &rec.judged.audit.processes[wait.process as usize];
        let (step, kind) = step_of(rec, wait.step);
        let lane = rec.lane_of_wait(index).map_or("", |lane| &rec.lanes[lane].name);
        let cause = rec.cause(index).and_then(|cause| rec.op(cause)).map(|op| op_words(&rec.trace, op));
        let fields = [
            index.to_string(),
            process.pid.to_string(),
            process.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            lane.to_owned(),
            wait.kind.id().to_owned(),
            site.rule.to_owned(),
            wait.evidence.id().to_owned(),
            site.fingerprint.clone(),
            site.status.id().to_owned(),
            place_text(site),
            site.range.join(" > "),
            site.op.clone().unwrap_or_default(),
            site.apis.join(" "),
            wait.bytes.to_string(),
            step,
            kind.to_owned(),
            rec.axis.position(wait.start_ns).to_string(),
            unit.to_owned(),
            wait.blocked_ns.map(|ns| ns.to_string()).unwrap_or_default(),
            cause.unwrap_or_default(),
        ];
        let line: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
        out.write_all(line.join(",").as_bytes())?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// A field in quotes where it needs them. What a spreadsheet would take for a formula is not left to begin with one's sign: names
/// come from the traced program.
fn quoted(field: &str) -> String {
    let harmless = if field.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if harmless.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", harmless.replace('"', "\"\""));
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_survive_commas_quotes_and_spreadsheets() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("f<a, b>(\"x\")"), "\"f<a, b>(\"\"x\"\")\"");
        assert_eq!(quoted("=cmd()"), "'=cmd()");
    }
}
