//! `syncaudit init`: writes a budget file to start from.

use super::write_whole;
use crate::cli::InitArgs;
use crate::trouble::Trouble;
use crate::{judge, load, say};
use syncaudit::{audit, config, exit};

pub fn init(args: &InitArgs) -> Result<u8, Trouble> {
    if args.output.as_os_str() != "-" && args.output.exists() {
        return Err(Trouble::new(
            format!("write {}", args.output.display()),
            "it is there already",
            "name another file with -o FILE, or `-o -` to see what would be written",
        ));
    }
    let text = match &args.trace {
        None => config::starter(None),
        Some(trace) => {
            let trace = std::slice::from_ref(trace);
            // There is no configuration yet, unless one is named.
            let settings = judge::Settings::of(&args.audit)?;
            let options = settings.options(&args.audit, judge::recorded_steps(trace).as_ref());
            let audit = audit::audit(&load(trace)?, &options);
            config::starter(Some((&audit, &options)))
        }
    };
    write_whole(&args.output, &text)?;
    if args.output.as_os_str() != "-" {
        let next = match &args.trace {
            Some(trace) => format!("syncaudit baseline {}", trace.display()),
            None => "syncaudit run -- PROGRAM, which says where its trace is".to_owned(),
        };
        say(&format!("{} was written; next: {next}", args.output.display()));
    }
    Ok(exit::PASS)
}
